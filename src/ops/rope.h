// Rotary position embedding (Su et al. 2021), half-split as in Hugging Face's Llama, or
// interleaved as in the paper.
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
  /// `frequencies` [rotary / 2]: radians per position, scaling already applied. cos and sin are
  /// multiplied by `factor` (YaRN's attention factor). `interleaved`: how rope() pairs channels.
  void compute(std::span<const float> frequencies, std::span<const std::int32_t> positions,
               float factor = 1.0F, bool interleaved = false);

  /// The number of channels of a head that are rotated: two per frequency.
  [[nodiscard]] std::size_t rotary() const { return 2 * half_; }
  [[nodiscard]] bool interleaved() const { return interleaved_; }
  [[nodiscard]] std::span<const float> cosines(std::size_t token) const {
    return {cosines_.data() + token * half_, half_};
  }
  [[nodiscard]] std::span<const float> sines(std::size_t token) const {
    return {sines_.data() + token * half_, half_};
  }

 private:
  std::size_t half_ = 0;
  bool interleaved_ = false;
  Buffer<float> cosines_;  // [tokens, rotary / 2]
  Buffer<float> sines_;
};

/// Rotates the first angles.rotary() channels of every head of x [T, heads * head_dim] in place:
/// each pair of channels (i, i + rotary / 2), interleaved (2i, 2i + 1), is rotated by the token's
/// i-th angle and scaled by the angles' factor. The other channels do not change.
void rope(Matrix<float> x, int head_dim, const RopeAngles& angles);

/// Backward of rope, in place: rotates the result's gradient back and multiplies it by the factor.
void rope_backward(Matrix<float> dx, int head_dim, const RopeAngles& angles);

}  // namespace winnow::ops
