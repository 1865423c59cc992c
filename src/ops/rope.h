// Rotary position embedding (Su et al. 2021), half-split as in Hugging Face.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/tensor.h"
#include "ops/matrix.h"

namespace winnow::ops {

/// cos and sin of position * frequency, one row per token of a step.
class RopeAngles {
 public:
  /// `frequencies` [head_dim / 2]: radians per position, scaling already applied.
  void compute(std::span<const float> frequencies, std::span<const std::int32_t> positions);

  [[nodiscard]] std::span<const float> cosines(std::size_t token) const {
    return {cosines_.data() + token * half_, half_};
  }
  [[nodiscard]] std::span<const float> sines(std::size_t token) const {
    return {sines_.data() + token * half_, half_};
  }

 private:
  std::size_t half_ = 0;
  Buffer<float> cosines_;  // [tokens, head_dim / 2]
  Buffer<float> sines_;
};

/// Rotates every head of x [T, heads * head_dim] in place: channels i and i + head_dim / 2 are a
/// plane that turns by the token's i-th angle.
void rope(Matrix<float> x, int head_dim, const RopeAngles& angles);

/// Backward of rope, in place: turns the gradient of its result back.
void rope_backward(Matrix<float> dx, int head_dim, const RopeAngles& angles);

}  // namespace winnow::ops
