// Returns the tokens of a step to the host.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "base/cuda/device.h"

namespace winnow::model::cuda {

/// Page-locked memory that the end of a step (end_step(), or a StepKernel) writes tokens to. The
/// host polls it and sees the tokens some microseconds before the stream is known to be
/// idle.
class StepTokens {
 public:
  explicit StepTokens(std::size_t most) : tokens_(most) {}

  [[nodiscard]] std::int32_t* data() const { return tokens_.data(); }

  /// Call it before the step is enqueued.
  void expect(std::size_t count);
  /// Waits until all expected tokens have arrived; the step's other outputs to the host are then
  /// visible, too. Throws Error if the stream has failed.
  [[nodiscard]] std::span<const std::int32_t> wait(const winnow::cuda::Stream& stream) const;

 private:
  static constexpr std::int32_t kPending = std::numeric_limits<std::int32_t>::min();

  winnow::cuda::PinnedBuffer<std::int32_t> tokens_;
  std::size_t expected_ = 0;
};

}  // namespace winnow::model::cuda
