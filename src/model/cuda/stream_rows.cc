#include "model/cuda/stream_rows.h"

#include <cstddef>

#include "base/error.h"
#include "ops/cuda/general/norm.h"

namespace winnow::model::cuda {

void StreamRows::want(std::span<const int> after, int rows) {
  const std::size_t count =
      static_cast<std::size_t>(rows) * static_cast<std::size_t>(model_->hidden());
  rows_.ensure(count * after.size());
  if (std::ranges::find(after, model_->layers() + 1) != after.end()) {
    require(!model_->spec().final_norm.centers(), "devices hand out no states behind a LayerNorm");
    normed_.ensure(count);
  }
  after_.assign(after.begin(), after.end());
  repeats_ =
      std::ranges::any_of(after, [&](int layer) { return std::ranges::count(after, layer) > 1; });
}

float* StreamRows::place_after(int layers) const {
  const auto found = std::ranges::find(after_, layers);
  return found == after_.end() ? nullptr
                               : rows_.data() + (found - after_.begin()) *
                                                    static_cast<std::ptrdiff_t>(model_->hidden());
}

void StreamRows::keep(int layer, const float* stream_rows, int rows, cudaStream_t stream) const {
  const auto width = static_cast<std::size_t>(model_->hidden());
  for (std::size_t i = 0; i < after_.size(); ++i) {
    if (after_[i] == layer) {
      winnow::cuda::check(
          cudaMemcpy2DAsync(rows_.data() + i * width, after_.size() * width * sizeof(float),
                            stream_rows, width * sizeof(float), width * sizeof(float),
                            static_cast<std::size_t>(rows), cudaMemcpyDeviceToDevice, stream),
          "keep the states before a layer");
    }
  }
}

void StreamRows::keep_end(const float* stream_rows, int rows, cudaStream_t stream) const {
  keep(model_->layers(), stream_rows, rows, stream);
  if (std::ranges::find(after_, model_->layers() + 1) != after_.end()) {
    const NormSpec& norm = model_->spec().final_norm;
    ops::cuda::rms_norm(normed_.data(), stream_rows, rows, model_->hidden(),
                        {.weight = model_->weights().norm.data()}, norm.eps, stream);
    keep(model_->layers() + 1, normed_.data(), rows, stream);
  }
}

void StreamRows::read(int first, const StreamStates& to, cudaStream_t stream) const {
  const std::size_t width = after_.size() * static_cast<std::size_t>(model_->hidden());
  if (to.out.rows > 0) {
    winnow::cuda::check(cudaMemcpy2DAsync(to.out.data, to.out.stride * sizeof(float),
                                          rows_.data() + static_cast<std::size_t>(first) * width,
                                          width * sizeof(float), width * sizeof(float), to.out.rows,
                                          cudaMemcpyDeviceToHost, stream),
                        "read the states between layers");
  }
}

}  // namespace winnow::model::cuda
