#include "model/cuda/stream_rows.h"

#include <cstddef>

namespace winnow::model::cuda {

void StreamRows::take(std::span<const int> after, int rows) {
  after_.assign(after.begin(), after.end());
  rows_.ensure(static_cast<std::size_t>(rows) * after.size() * static_cast<std::size_t>(hidden_));
}

void StreamRows::keep(int layer, const float* stream_rows, int rows, cudaStream_t stream) const {
  const std::size_t row_bytes = static_cast<std::size_t>(hidden_) * sizeof(float);
  for (std::size_t i = 0; i < after_.size(); ++i) {
    if (after_[i] == layer) {
      winnow::cuda::check(
          cudaMemcpy2DAsync(rows_.data() + i * static_cast<std::size_t>(hidden_),
                            after_.size() * row_bytes, stream_rows, row_bytes, row_bytes,
                            static_cast<std::size_t>(rows), cudaMemcpyDeviceToDevice, stream),
          "keep the states before a layer");
    }
  }
}

void StreamRows::read(int first, const StreamStates& to, cudaStream_t stream) const {
  const std::size_t width = after_.size() * static_cast<std::size_t>(hidden_);
  if (to.out.rows > 0) {
    winnow::cuda::check(cudaMemcpy2DAsync(to.out.data, to.out.stride * sizeof(float),
                                          rows_.data() + static_cast<std::size_t>(first) * width,
                                          width * sizeof(float), width * sizeof(float), to.out.rows,
                                          cudaMemcpyDeviceToHost, stream),
                        "read the states between layers");
  }
}

}  // namespace winnow::model::cuda
