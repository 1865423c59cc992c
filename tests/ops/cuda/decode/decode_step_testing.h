// A decode step on the device: the contents of each row before and after its token is stored.
#pragma once

#include <vector>

#include "base/cuda/device.h"
#include "ops/cpu/attention/attention_testing.h"
#include "ops/cuda/decode/decode_attention.h"

namespace winnow::ops::cuda::testing {

/// A sequence before the step. `archived`: entries per KV head (of layer 0; the heads of layer l
/// are those of layer 0 shifted by l). Negative slots, at the end, pad the batch.
struct Sequence {
  int slot;
  int length;
  std::vector<int> archived;
};

struct StepShape {
  EntryFormat format;
  int head_dim;
  int window;
  int layers;
};

/// Everything in device memory twice. At the beginning of the step, the places that storing the
/// token writes, free slots and unused sequence slots contain only NaNs and page numbers out of
/// range; the second copy is the state after that. The order of pages is unrelated to the rows.
class Step {
 public:
  Step(const StepShape& shape, const std::vector<Sequence>& sequences);

  [[nodiscard]] const DevicePageLayout& layout() const { return layout_; }
  [[nodiscard]] int layers() const { return static_cast<int>(layers_.size()); }
  [[nodiscard]] int batch() const { return static_cast<int>(sequences_.size()); }
  [[nodiscard]] int kv_heads() const { return kv_heads_; }
  [[nodiscard]] std::size_t layer_counts() const { return state_rows_; }
  [[nodiscard]] DecodeEntries entries(int layer) const;
  /// The entries that a batch row sees.
  [[nodiscard]] std::vector<ops::testing::Seen> seen(int layer, int row) const;

  /// Restores the state at the beginning of the step.
  void reset() const;
  /// Stores a layer's tokens and sets `query` to [query.size()] floats at `source`, in a kernel
  /// that lets its successor begin long before it writes.
  void take_tokens(int layer, const float* source, const winnow::cuda::DeviceBuffer<float>& query,
                   const winnow::cuda::Stream& stream) const;

 private:
  /// Host memory of one layer.
  struct Tables {
    std::vector<std::byte> pool;
    std::vector<std::uint32_t> archive_pages;
    std::vector<std::uint32_t> window_pages;
    std::vector<std::int32_t> archive_counts;
  };
  /// The same on the device.
  struct DeviceTables {
    DeviceTables() = default;
    explicit DeviceTables(const Tables& tables);
    winnow::cuda::DeviceBuffer<std::byte> pool;
    winnow::cuda::DeviceBuffer<std::uint32_t> archive_pages;
    winnow::cuda::DeviceBuffer<std::uint32_t> window_pages;
    winnow::cuda::DeviceBuffer<std::int32_t> archive_counts;
  };
  struct Layer {
    std::vector<ops::testing::Entries> windows;  // [batch rows], after the step
    std::vector<ops::testing::Entries> archives;
    DeviceTables before;
    DeviceTables after;
    DeviceTables live;  // archive_counts: in counts_
  };

  void add_layer(int layer);
  // Adds a row's pages of the window or the archive; the token is stored in slot `written`
  // (negative: in none).
  void add_pages(const ops::testing::Entries& entries, int written, std::uint32_t* before_table,
                 std::uint32_t* after_table, Tables& before, Tables& after) const;
  [[nodiscard]] bool fills_archive(const Sequence& sequence, int head, int layer) const;

  DevicePageLayout layout_;
  int window_;
  int kv_heads_;
  std::size_t state_rows_;
  std::size_t archive_stride_;
  std::size_t window_stride_;
  std::vector<Sequence> sequences_;
  std::vector<Layer> layers_;
  winnow::cuda::DeviceBuffer<std::int32_t> counts_;  // [layers, state rows]
  winnow::cuda::DeviceBuffer<std::int32_t> lengths_;
  winnow::cuda::DeviceBuffer<std::int32_t> slots_;
};

}  // namespace winnow::ops::cuda::testing
