// From the last layer's rows to logits and tokens on a device.
#pragma once

#include <cstdint>
#include <span>

#include "model/cuda/device_model.h"
#include "ops/cuda/linear_rows.h"
#include "ops/matrix.h"

namespace winnow::model::cuda {

class OutputHead {
 public:
  explicit OutputHead(const DeviceModel& model);

  /// The most likely tokens of up to kMostLinearRows rows, to tokens(); their logits to logits() if
  /// asked for. Can be captured in a graph.
  void run(const ops::cuda::RowsInput& rows, bool with_logits, ops::cuda::RowsLaunch launch);
  [[nodiscard]] const std::int32_t* tokens() const { return tokens_.data(); }
  [[nodiscard]] const float* logits() const { return logits_.data(); }

  /// Any number of normed rows [rows, hidden]: the most likely tokens and logits to the host.
  /// Either may be empty. Waits for the stream.
  void read(const bf16* normed, std::size_t rows, ops::Matrix<float> logits,
            std::span<std::int32_t> best, const winnow::cuda::Stream& stream);

 private:
  ops::cuda::RowsLinear linear_;
  std::size_t vocab_;
  std::size_t hidden_;
  winnow::cuda::DeviceBuffer<std::int32_t> tokens_;
  winnow::cuda::DeviceBuffer<float> logits_;  // [kMostLinearRows, vocab]
  winnow::cuda::DeviceBuffer<std::uint64_t> scratch_;
  winnow::cuda::DeviceBuffer<std::uint32_t> blocks_done_;
};

}  // namespace winnow::model::cuda
