#include "model/cuda/output_head.h"

#include <algorithm>

namespace winnow::model::cuda {
namespace {

constexpr std::size_t kMostRows = ops::cuda::kMostLinearRows;

}  // namespace

OutputHead::OutputHead(const DeviceModel& model)
    : linear_{model.weights().head(), nullptr},
      vocab_(static_cast<std::size_t>(model.config().vocab)),
      hidden_(static_cast<std::size_t>(model.config().hidden)),
      tokens_(kMostRows),
      logits_(kMostRows * vocab_) {}

ops::cuda::RowsLayer OutputHead::layer(const ops::cuda::RowsInput& input, bool with_logits) const {
  return ops::cuda::chosen(linear_, input, tokens_.data(), with_logits ? logits_.data() : nullptr);
}

void OutputHead::read(const bf16* normed, std::size_t rows, ops::Matrix<float> logits,
                      std::span<std::int32_t> best, const winnow::cuda::Stream& stream) {
  for (std::size_t first = 0; first < rows; first += kMostRows) {
    const std::size_t count = std::min(kMostRows, rows - first);
    const ops::cuda::RowsLayer head = layer({.x = normed + first * hidden_}, logits.rows > 0);
    ops::cuda::linear_rows(std::span(&head, 1), static_cast<int>(count), scratch_, {stream.get()});
    if (logits.rows > 0) {
      winnow::cuda::check(
          cudaMemcpyAsync(logits.row(first).data(), logits_.data(), count * vocab_ * sizeof(float),
                          cudaMemcpyDeviceToHost, stream.get()),
          "read logits");
    }
    if (!best.empty()) {
      winnow::cuda::check(
          cudaMemcpyAsync(best.data() + first, tokens_.data(), count * sizeof(std::int32_t),
                          cudaMemcpyDeviceToHost, stream.get()),
          "read tokens");
    }
  }
  stream.synchronize();
}

}  // namespace winnow::model::cuda
