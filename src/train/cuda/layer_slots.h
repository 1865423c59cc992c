// Whole layers of a model that ranks hold in parts.
#pragma once

#include <array>
#include <functional>

#include "base/cuda/device.h"
#include "base/dtype.h"

namespace winnow::train::cuda {

/// Two buffers, each with the matrices of one layer. While a pass uses one, the other is filled
/// with the next layer's, in a stream of its own.
class LayerSlots {
 public:
  /// Fills a buffer with a layer's matrices.
  using Fill = std::function<void(int layer, bf16* to, cudaStream_t stream)>;

  /// `elements`: of the largest layer. `passes` is the stream of all passes.
  LayerSlots(std::size_t elements, const winnow::cuda::Stream& passes);

  /// Where the matrices of a layer are while it is open.
  [[nodiscard]] bf16* of(int layer) const { return slot_of(layer).memory.data(); }
  /// Later work of passes reads `layer`, and then `next` if it is not negative. `model` tells the
  /// layers of several models apart.
  void open(const void* model, int layer, int next, const Fill& fill);
  /// The layers of `model` have changed.
  void forget(const void* model);

 private:
  struct Slot {
    winnow::cuda::DeviceBuffer<bf16> memory;
    const void* model = nullptr;  // null: empty
    int layer = 0;
    winnow::cuda::Event filled;
  };
  [[nodiscard]] const Slot& slot_of(int layer) const {
    return slots_[static_cast<std::size_t>(layer % 2)];
  }
  void require_filled(const void* model, int layer, const Fill& fill);

  const winnow::cuda::Stream& passes_;
  winnow::cuda::Stream copies_;
  winnow::cuda::Event passed_;
  std::array<Slot, 2> slots_;
};

}  // namespace winnow::train::cuda
