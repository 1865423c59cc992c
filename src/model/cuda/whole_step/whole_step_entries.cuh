// A warp's share of the entries of one KV head in a whole step's attention, layer after layer.
#pragma once

#include <bit>

#include "model/cuda/whole_step/whole_step_memory.cuh"

namespace winnow::model::cuda {

/// A row's pages are those of the window, then those of the archive, then a page with the token's
/// own entry; they are split evenly among the head's warps. They do not change before all layers
/// are done, so a warp requests page numbers and lengths one layer ahead, and copies its first page
/// while the layers before are computed.
template <ops::EntryFormat kType, int D, bool kLongRows>
class WholeStepEntries {
 public:
  using Shape = WholeStepShape<kType, D, kLongRows>;

  /// For warp `worker` of the head. `arguments` and `sequence` may be filled in later; `pages`,
  /// `states` and `share` are the warp's own shared memory.
  __device__ WholeStepEntries(const WholeStepArguments& arguments,
                              const WholeStepSequence& sequence, int head, int worker,
                              std::byte* pages, typename Shape::StreamState* states,
                              WholeStepShare& share, const std::byte* pool)
      : a_(arguments),
        sequence_(sequence),
        head_(head),
        worker_(worker),
        share_(share),
        stream_(pool, pages, states) {}

  /// Called before the first layer.
  __device__ void begin() { count_ = __ldcg(a_.cache.archive_counts + row(0)); }

  /// Requests the numbers of the warp's pages in a layer, and the length of the next layer's
  /// archive: the first use of each waits for it.
  __device__ void look_up(int layer) {
    const int pages = new_entry_page(count_) + 1;
    const int workers_log2 = a_.parts_log2 + std::countr_zero(unsigned{Shape::kWarps});
    const int first = pages * worker_ >> workers_log2;
    count_of_pages_ = (pages * (worker_ + 1) >> workers_log2) - first;
    if (lane() == 0) {
      share_ = {.layer = layer, .archived = count_, .first = first};
    }
    __syncwarp();
    look_up_numbers(0);
    if (sequence_.length >= sequence_.ring && a_.cache.mark_words > 0) {
      const int slot = sequence_.length % sequence_.ring;
      marks_ = __ldcg(a_.cache.marks + row(layer) * a_.cache.mark_words + slot / 32);
    }
    if (layer + 1 < a_.layers) {
      count_ = __ldcg(a_.cache.archive_counts + row(layer + 1));
    }
  }

  /// Starts to copy the pages. The warp must have read the last pages in their place.
  __device__ void fetch() {
    find_hidden();
    find_tags(0);
    ops::cuda::fence_async_proxy();
    fetched_ = 0;
    for (int i = 0, stage = stream_.stage(); i < Shape::kStages; ++i) {
      if (fetched_ < count_of_pages_) {
        fetch_next(stage);
      }
      stage = stage + 1 < Shape::kStages ? stage + 1 : 0;
    }
  }

  /// Attends to the warp's pages. `new_entry`: a page whose first entry is the token's.
  __device__ void attend(typename Shape::Attention& attention, const std::byte* new_entry) {
#pragma unroll 1
    for (int page = 0; page < count_of_pages_; ++page) {
      const std::byte* brought = stream_.front();
      const auto tag = static_cast<std::uint32_t>(stream_.tag(0));
      const std::uint32_t seen[1] = {tag & ops::cuda::kWholePage};
      const Shared pages[1] = {Shared((tag & kNewEntry) != 0 ? new_entry : brought)};
      if constexpr (Shape::kReadsAhead) {
        Held held[1];
        held[0].read(pages[0]);
        replace_front();
        if (seen[0] != 0) {
          attention.attend(held, seen);
        }
      } else {
        if (seen[0] != 0) {
          attention.attend(pages, seen);
        }
        replace_front();
      }
    }
  }

 private:
  using Shared = typename Shape::Attention::Shared;
  using Held = typename Shape::Attention::Held;
  // A page's tag has a bit for each visible entry, and one for the page of the token's entry.
  static constexpr std::uint32_t kNewEntry = ops::cuda::kWholePage + 1;

  static __device__ int lane() {
    return static_cast<int>(threadIdx.x) % 32;
  }
  [[nodiscard]] __device__ std::size_t row(int layer) const {
    return a_.cache.row(layer, sequence_.slot, head_);
  }
  [[nodiscard]] __device__ int window_pages() const {
    return kvcache::cuda::pages_for(sequence_.window_entries);
  }
  [[nodiscard]] __device__ int new_entry_page(int archived) const {
    return window_pages() + kvcache::cuda::pages_for(archived);
  }

  // Reads this lane's page number, for the warp's 32 pages from `from` on.
  __device__ void look_up_numbers(int from) {
    const int j = share_.first + from + lane();
    number_ = ops::cuda::kNoPage;
    if (from + lane() < count_of_pages_ && j < new_entry_page(share_.archived)) {
      const kvcache::cuda::CacheView& cache = a_.cache;
      const std::size_t row = this->row(share_.layer);
      const int archived = j - window_pages();
      number_ = __ldcg(archived < 0 ? cache.window_pages + row * cache.window_stride + j
                                    : cache.archive_pages + row * cache.archive_stride + archived);
    }
  }
  __device__ void find_tags(int from) {
    tag_ = from + lane() < count_of_pages_ ? tag_of(share_.first + from + lane()) : 0;
  }

  // Hides the entry that the token will replace in the window, unless it will be archived.
  __device__ void find_hidden() {
    const int ring = sequence_.ring;
    const int length = sequence_.length;
    if (ring > 0 && length >= ring) {
      const int slot = length % ring;
      const bool kept = a_.cache.sinks != nullptr ? length - ring < a_.cache.sinks[sequence_.slot]
                        : a_.cache.mark_words > 0 ? (marks_ >> (slot % 32) & 1U) == 0
                                                  : true;
      if (lane() == 0) {
        share_.hidden = kept ? -1 : slot;
      }
      __syncwarp();
    }
  }

  // The tag of the row's page j.
  [[nodiscard]] __device__ std::uint32_t tag_of(int j) const {
    if (j == new_entry_page(share_.archived)) {
      return kNewEntry | 1U;
    }
    const int archived = j - window_pages();
    const int left = archived < 0 ? sequence_.window_entries - j * ops::kPageEntries
                                  : share_.archived - archived * ops::kPageEntries;
    const std::uint32_t bits = ops::cuda::first_entries(min(left, ops::kPageEntries));
    const int hidden = share_.hidden;
    const bool hides = archived < 0 && hidden >= 0 && hidden / ops::kPageEntries == j;
    return hides ? bits & ~(1U << hidden % ops::kPageEntries) : bits;
  }

  // Requests the next page.
  __device__ void fetch_next(int stage) {
    stream_.put(lane() == fetched_ % 32, stage, 0, number_, static_cast<int>(tag_));
    ++fetched_;
  }

  // Drops the front page, which has been read, and requests another.
  __device__ void replace_front() {
    if (fetched_ < count_of_pages_) {
      if (fetched_ % 32 == 0) {
        look_up_numbers(fetched_);
        find_tags(fetched_);
      }
      __syncwarp();  // all lanes take part in put()
      fetch_next(stream_.stage());
    }
    stream_.drop_front();
  }

  const WholeStepArguments& a_;
  const WholeStepSequence& sequence_;
  int head_;
  int worker_;
  WholeStepShare& share_;  // of the last look_up()
  typename Shape::Stream stream_;
  int count_ = 0;  // entries of the next layer's archive
  int count_of_pages_ = 0;
  int fetched_ = 0;
  std::uint32_t number_ = ops::cuda::kNoPage;  // of this lane's page of 32
  std::uint32_t tag_ = 0;                      // its tag
  std::uint32_t marks_ = 0;                    // has the mark of the window slot that is replaced
};

}  // namespace winnow::model::cuda
