// The states of recurrent layers in device memory (kvcache/recurrent_state.h).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <vector>

#include "base/cuda/device.h"
#include "kvcache/recurrent_state.h"

namespace winnow::kvcache::cuda {

/// Room for a number of states, which sequences take as they need them. A fork copies the state,
/// because the next token of either sequence overwrites it. Kernels find a state by its slot.
class DeviceStates {
 public:
  /// Allocates the memory at once.
  DeviceStates(const StateShape& shape, int count);

  [[nodiscard]] const StateShape& shape() const { return shape_; }
  /// The number of states in all, and the number that are free.
  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] int free() const { return static_cast<int>(free_.size()); }
  /// Bytes of all states, and of those that sequences hold.
  [[nodiscard]] std::size_t bytes() const { return index(count_) * shape_.bytes(); }
  [[nodiscard]] std::size_t used_bytes() const { return index(count_ - free()) * shape_.bytes(); }

  /// Whether the sequence in `slot` has a state. Models without recurrent layers have none.
  [[nodiscard]] bool holds(int slot) const { return places_[index(slot)] != nullptr; }
  /// The number of states that the sequence's next tokens take: 0 or 1.
  [[nodiscard]] int need(int slot) const { return shape_.size() > 0 && !holds(slot) ? 1 : 0; }

  /// The address of each sequence's state, by slot, in device memory. resize() replaces the table.
  [[nodiscard]] float* const* table() const { return table_.data(); }
  void resize(int slots);

  /// Gives the sequence a state of zeros, if it needs one. Throws Error when none is free.
  void ensure(int slot, cudaStream_t stream);
  /// Gives slot `to`, which has none, a copy of the state of `from`, if that has one.
  void fork(int from, int to, cudaStream_t stream);
  void release(int slot);

  /// The values of a sequence's state, [layers, floats]; empty if it has none. Waits for `stream`.
  [[nodiscard]] std::vector<float> save(int slot, cudaStream_t stream) const;
  /// Gives a sequence, which has none, a state with these values.
  void restore(int slot, std::span<const float> values, cudaStream_t stream);

 private:
  static std::size_t index(int slot) { return static_cast<std::size_t>(slot); }
  float* take(int slot, cudaStream_t stream);

  StateShape shape_;
  int count_;
  winnow::cuda::DeviceBuffer<float> memory_;
  std::vector<float*> free_;    // the first state is last
  std::vector<float*> places_;  // by slot; null: none
  winnow::cuda::DeviceBuffer<float*> table_;
};

}  // namespace winnow::kvcache::cuda
