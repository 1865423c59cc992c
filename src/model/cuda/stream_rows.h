// The states of a step's tokens between layers, for a head that drafts (StreamStates).
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/cuda/device.h"
#include "model/stream_states.h"

namespace winnow::model::cuda {

class StreamRows {
 public:
  explicit StreamRows(int hidden) : hidden_(hidden) {}

  /// The next steps hand out the residual stream of up to `rows` tokens after so many layers each;
  /// none: nothing.
  void take(std::span<const int> after, int rows);
  [[nodiscard]] bool takes(std::span<const int> after) const {
    return std::ranges::equal(after, after_);
  }
  /// Keeps the stream [rows, hidden] before a layer, if it is wanted.
  void keep(int layer, const float* stream_rows, int rows, cudaStream_t stream) const;
  /// Copies the kept states of `to`'s tokens, of which `first` is the first row, to the host.
  void read(int first, const StreamStates& to, cudaStream_t stream) const;

 private:
  std::vector<int> after_;
  int hidden_;
  winnow::cuda::DeviceBuffer<float> rows_;  // [rows, after * hidden]
};

}  // namespace winnow::model::cuda
