// A warp's share of the entries of one KV head, layer after layer, in the attention of a chain.
#pragma once

#include <bit>

#include "kvcache/cuda/chained_memory.cuh"

namespace winnow::kvcache::cuda {

/// The pages of the window, those of the archive, and as the last one the token's own entry are cut
/// evenly among the head's warps. Nothing of them changes before all layers are done; so what a
/// warp needs to know is asked for a layer ahead, and its first page is on its way while the layers
/// before are computed.
template <ops::EntryFormat kType, int D, bool kLongRows>
class ChainedEntries {
 public:
  using Shape = ChainedShape<kType, D, kLongRows>;

  /// Of warp `worker` of the head's. Arguments and sequence may be filled in later.
  __device__ ChainedEntries(const ChainedArguments& arguments, const ChainedSequence& sequence,
                            int head, int worker, std::byte* pages,
                            typename Shape::StreamState* states, const std::byte* pool)
      : a_(arguments),
        sequence_(sequence),
        head_(head),
        worker_(worker),
        stream_(pool, pages, states) {}

  /// Before the first layer.
  __device__ void begin() { count_ = __ldcg(a_.cache.archive_counts + row(0)); }

  /// Asks for the numbers of the warp's pages in a layer, and for the length of the archive in the
  /// layer after it: both are waited for when they are used.
  __device__ void look_up(int layer) {
    layer_ = layer;
    archived_ = count_;
    const int pages = newcomer_page() + 1;
    const int workers_log2 = a_.parts_log2 + std::countr_zero(unsigned{Shape::kWarps});
    first_ = pages * worker_ >> workers_log2;
    count_of_pages_ = (pages * (worker_ + 1) >> workers_log2) - first_;
    look_up_numbers(0);
    if (sequence_.length >= sequence_.ring && a_.cache.mark_words > 0) {
      const int slot = sequence_.length % sequence_.ring;
      marks_ = __ldcg(a_.cache.marks + row(layer) * a_.cache.mark_words + slot / 32);
    }
    if (layer + 1 < a_.layers) {
      count_ = __ldcg(a_.cache.archive_counts + row(layer + 1));
    }
  }

  /// Starts to bring them. The warp has read what lay in their place.
  __device__ void fetch() {
    find_hidden();
    ops::cuda::fence_async_proxy();
    fetched_ = 0;
    for (int i = 0, stage = stream_.stage(); i < Shape::kStages; ++i) {
      if (fetched_ < count_of_pages_) {
        fetch_page(stage);
      }
      stage = stage + 1 < Shape::kStages ? stage + 1 : 0;
    }
    // Those behind them come from the second-level cache, then.
    if (lane() >= Shape::kStages && number_ != ops::cuda::kNoPage) {
      ops::cuda::prefetch(a_.cache.pool + std::size_t{number_} * Shape::kPageBytes,
                          Shape::kPageBytes);
    }
  }

  /// `newcomer`: a page whose first entry is the token's.
  __device__ void attend(typename Shape::Attention& attention, const std::byte* newcomer) {
#pragma unroll 1
    for (int page = 0; page < count_of_pages_; ++page) {
      const std::byte* brought = stream_.front();
      const std::uint32_t seen[1] = {static_cast<std::uint32_t>(stream_.tag(0))};
      if (seen[0] != 0) {
        attention.attend({first_ + page == newcomer_page() ? newcomer : brought}, seen);
      }
      if (fetched_ < count_of_pages_) {
        if (fetched_ % 32 == 0) {
          look_up_numbers(fetched_);
        }
        __syncwarp();  // every lane has read the page
        fetch_page(stream_.stage());
      }
      stream_.drop_front();
    }
  }

 private:
  static __device__ int lane() {
    return static_cast<int>(threadIdx.x) % 32;
  }
  [[nodiscard]] __device__ std::size_t row(int layer) const {
    return a_.cache.row(layer, sequence_.slot, head_);
  }
  [[nodiscard]] __device__ int window_pages() const {
    return pages_for(sequence_.window_entries);
  }
  [[nodiscard]] __device__ int newcomer_page() const {
    return window_pages() + pages_for(archived_);
  }

  // The lane's of the warp's 32 pages from `from` on.
  __device__ void look_up_numbers(int from) {
    const int j = first_ + from + lane();
    number_ = ops::cuda::kNoPage;
    if (from + lane() < count_of_pages_ && j < newcomer_page()) {
      const CacheView& cache = a_.cache;
      const int archived = j - window_pages();
      number_ = __ldcg(archived < 0
                           ? cache.window_pages + row(layer_) * cache.window_stride + j
                           : cache.archive_pages + row(layer_) * cache.archive_stride + archived);
    }
  }

  // The entry that the token's takes the place of is gone, unless it will be archived.
  __device__ void find_hidden() {
    const int ring = sequence_.ring;
    const int length = sequence_.length;
    hidden_ = -1;
    if (ring > 0 && length >= ring) {
      const int slot = length % ring;
      const bool kept = a_.cache.sinks != nullptr ? length - ring < a_.cache.sinks[sequence_.slot]
                        : a_.cache.mark_words > 0 ? (marks_ >> (slot % 32) & 1U) == 0
                                                  : true;
      hidden_ = kept ? -1 : slot;
    }
  }

  // The entries of the row's page j that are seen.
  [[nodiscard]] __device__ std::uint32_t seen(int j) const {
    if (j == newcomer_page()) {
      return 1U;
    }
    const int archived = j - window_pages();
    const int left = archived < 0 ? sequence_.window_entries - j * ops::kPageEntries
                                  : archived_ - archived * ops::kPageEntries;
    const std::uint32_t bits = ops::cuda::first_entries(min(left, ops::kPageEntries));
    const bool hides = archived < 0 && hidden_ >= 0 && hidden_ / ops::kPageEntries == j;
    return hides ? bits & ~(1U << hidden_ % ops::kPageEntries) : bits;
  }

  __device__ void fetch_page(int stage) {
    const std::uint32_t number = __shfl_sync(0xFFFFFFFFU, number_, fetched_ % 32);
    stream_.put(stage, 0, number, static_cast<int>(seen(first_ + fetched_)));
    ++fetched_;
  }

  const ChainedArguments& a_;
  const ChainedSequence& sequence_;
  int head_;
  int worker_;
  typename Shape::Stream stream_;
  int layer_ = 0;     // that has been looked up
  int archived_ = 0;  // entries of its archive
  int count_ = 0;     // of that of the layer after it
  int first_ = 0;     // of the warp's pages
  int count_of_pages_ = 0;
  int fetched_ = 0;
  std::uint32_t number_ = ops::cuda::kNoPage;  // the lane's page of 32
  std::uint32_t marks_ = 0;                    // the word with the mark of the slot that turns over
  int hidden_ = -1;                            // slot of the ring
};

}  // namespace winnow::kvcache::cuda
