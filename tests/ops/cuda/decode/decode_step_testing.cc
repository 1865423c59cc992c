#include "ops/cuda/decode/decode_step_testing.h"

#include <cstring>

#include "ops/cuda/decode/late_copy.h"
#include "ops/cuda/pages/page_address.cuh"

namespace winnow::ops::cuda::testing {
namespace {

using ops::testing::Entries;
using winnow::cuda::DeviceBuffer;

constexpr std::uint32_t kNoPage = 0xFFFFFFFFU;
constexpr std::int32_t kGarbage = 0x3FFFFFFF;

std::size_t size(int n) {
  return static_cast<std::size_t>(n);
}

int pages_of(int entries) {
  return (entries + kPageEntries - 1) / kPageEntries;
}

// Overwrites an entry of a device page with NaNs.
void poison(const DevicePageLayout& layout, std::byte* page, int slot) {
  const auto bytes = layout.code_bits() / 8;
  const PageAddress address{layout.head_dim(), layout.code_bits()};
  const auto fill = [page](CodePlace place) {
    std::uint32_t word;
    std::memcpy(&word, page + place.offset, sizeof(word));
    word |= place_code(15U, place.index);
    std::memcpy(page + place.offset, &word, sizeof(word));
  };
  for (int d = 0; d < layout.head_dim(); ++d) {
    if (bytes == 0) {
      fill(address.key_code(slot, d));
      fill(address.value_code(slot, d));
    } else {
      std::memset(page + address.key(slot, d), 0xFF, size(bytes));
      std::memset(page + address.value(slot, d), 0xFF, size(bytes));
    }
  }
  if (address.scaled()) {
    std::memset(page + address.key_scale(slot), 0xFF, 2);
    std::memset(page + address.value_scale(slot), 0xFF, 2);
  }
}

template <class T>
void copy(const DeviceBuffer<T>& from, T* to) {
  winnow::cuda::check(
      cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyDeviceToDevice), "copy");
}

template <class T>
winnow::testing::Copy copy_of(const DeviceBuffer<T>& from, T* to) {
  return {reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from.data()),
          from.size() * sizeof(T)};
}

}  // namespace

Step::DeviceTables::DeviceTables(const Tables& tables)
    : pool(std::span<const std::byte>(tables.pool)),
      archive_pages(std::span<const std::uint32_t>(tables.archive_pages)),
      window_pages(std::span<const std::uint32_t>(tables.window_pages)),
      archive_counts(std::span<const std::int32_t>(tables.archive_counts)) {}

Step::Step(const StepShape& shape, const std::vector<Sequence>& sequences)
    : layout_(shape.format, shape.head_dim),
      window_(shape.window),
      kv_heads_(static_cast<int>(sequences.front().archived.size())),
      window_stride_(size(pages_of(shape.window + 1) + 1)),
      sequences_(sequences) {
  std::vector<std::int32_t> slots;
  int last_slot = 0;
  int most_archived = 0;
  for (const Sequence& sequence : sequences) {
    slots.push_back(sequence.slot);
    last_slot = std::max(last_slot, sequence.slot);
    most_archived = std::max(most_archived, *std::ranges::max_element(sequence.archived));
  }
  archive_stride_ = size(pages_of(most_archived + 1) + 1);
  std::vector<std::int32_t> lengths(size(last_slot + 2), kGarbage);
  for (const Sequence& sequence : sequences) {
    if (sequence.slot >= 0) {
      lengths[size(sequence.slot)] = sequence.length;
    }
  }
  state_rows_ = lengths.size() * size(kv_heads_);
  slots_ = DeviceBuffer<std::int32_t>(std::span<const std::int32_t>(slots));
  lengths_ = DeviceBuffer<std::int32_t>(std::span<const std::int32_t>(lengths));
  counts_ = DeviceBuffer<std::int32_t>(size(shape.layers) * state_rows_);
  for (int layer = 0; layer < shape.layers; ++layer) {
    add_layer(layer);
  }
}

// Whether the token that leaves the window (or, without a window, the new one) is kept.
bool Step::fills_archive(const Sequence& sequence, int head, int layer) const {
  return window_ < 0 || (sequence.length > window_ && (sequence.slot + head + layer) % 3 != 0 &&
                         sequence.archived[0] + sequence.archived.back() > 0);
}

void Step::add_pages(const Entries& entries, int written, std::uint32_t* before_table,
                     std::uint32_t* after_table, Tables& before, Tables& after) const {
  const std::size_t bytes = layout_.page_bytes();
  const EntrySpan span = entries.span();
  for (int p = pages_of(entries.count()); p-- > 0;) {
    const auto number = static_cast<std::uint32_t>(after.pool.size() / bytes);
    after.pool.resize(after.pool.size() + bytes);
    std::byte* page = after.pool.data() + after.pool.size() - bytes;
    arrange_page(layout_, span.base + span.pages[p] * layout_.host().page_bytes(), page);
    before.pool.insert(before.pool.end(), page, page + bytes);
    after_table[p] = number;
    before_table[p] = number;
    if (written / kPageEntries == p && written >= 0) {
      poison(layout_, before.pool.data() + before.pool.size() - bytes, written % kPageEntries);
      if (written == entries.count() - 1 && written % kPageEntries == 0) {
        before_table[p] = kNoPage;  // a new page
      }
    }
  }
}

void Step::add_layer(int layer) {
  Tables before;
  before.archive_pages.assign(state_rows_ * archive_stride_, kNoPage);
  before.window_pages.assign(state_rows_ * window_stride_, kNoPage);
  before.archive_counts.assign(state_rows_, kGarbage);
  Tables after = before;
  Layer& result = layers_.emplace_back();
  std::uint64_t seed = 1000 * static_cast<std::uint64_t>(layer);
  const int ring = window_ + 1;
  for (const Sequence& sequence : sequences_) {
    for (int head = 0; head < kv_heads_; ++head) {
      if (sequence.slot < 0) {
        result.windows.emplace_back(layout_.host(), 0, ++seed, 1.5F);
        result.archives.emplace_back(layout_.host(), 0, ++seed, 1.5F);
        continue;
      }
      const std::size_t row = size(sequence.slot * kv_heads_ + head);
      const int archived = sequence.archived[size((head + layer) % kv_heads_)];
      const int added = fills_archive(sequence, head, layer) ? 1 : 0;
      const Entries& window = result.windows.emplace_back(
          layout_.host(), std::min(sequence.length + 1, ring), ++seed, 1.5F);
      const Entries& archive =
          result.archives.emplace_back(layout_.host(), archived + added, ++seed, 1.5F);
      add_pages(window, ring > 0 ? sequence.length % ring : -1,
                &before.window_pages[row * window_stride_],
                &after.window_pages[row * window_stride_], before, after);
      add_pages(archive, added > 0 ? archived : -1, &before.archive_pages[row * archive_stride_],
                &after.archive_pages[row * archive_stride_], before, after);
      before.archive_counts[row] = archived;
      after.archive_counts[row] = archived + added;
    }
  }
  result.before = DeviceTables(before);
  result.after = DeviceTables(after);
  result.live = DeviceTables(before);
}

DecodeEntries Step::entries(int layer) const {
  const DeviceTables& live = layers_[size(layer)].live;
  return {.pool = live.pool.data(),
          .archive_pages = live.archive_pages.data(),
          .archive_stride = archive_stride_,
          .archive_counts = counts_.data() + size(layer) * state_rows_,
          .window_pages = live.window_pages.data(),
          .window_stride = window_stride_,
          .lengths = lengths_.data(),
          .window = window_,
          .slots = slots_.data(),
          .kv_heads = kv_heads_};
}

std::vector<ops::testing::Seen> Step::seen(int layer, int row) const {
  std::vector<ops::testing::Seen> result;
  const Layer& from = layers_[size(layer)];
  for (const Entries* entries : {&from.windows[size(row)], &from.archives[size(row)]}) {
    ops::testing::add_all(*entries, entries->count(), result);
  }
  return result;
}

void Step::reset() const {
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = layers_[l];
    copy(layer.before.pool, layer.live.pool.data());
    copy(layer.before.archive_pages, layer.live.archive_pages.data());
    copy(layer.before.window_pages, layer.live.window_pages.data());
    copy(layer.before.archive_counts, counts_.data() + l * state_rows_);
  }
  winnow::cuda::check(cudaDeviceSynchronize(), "reset");
}

void Step::take_tokens(int layer, const float* source, const DeviceBuffer<float>& query,
                       const winnow::cuda::Stream& stream) const {
  const Layer& from = layers_[size(layer)];
  winnow::testing::launch_late_copy(
      {{copy_of(from.after.pool, from.live.pool.data()),
        copy_of(from.after.archive_pages, from.live.archive_pages.data()),
        copy_of(from.after.window_pages, from.live.window_pages.data()),
        copy_of(from.after.archive_counts, counts_.data() + size(layer) * state_rows_),
        {reinterpret_cast<std::byte*>(query.data()), reinterpret_cast<const std::byte*>(source),
         query.size() * sizeof(float)}}},
      stream.get());
}

}  // namespace winnow::ops::cuda::testing
