#include "ops/rope.h"

#include <cassert>
#include <cmath>

#include "ops/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/rope.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace winnow::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rotates the pairs (x[i], x[i + half]) of one head's rotary channels by their angles times
// `sign`.
void RotateHead(std::span<float> x, const float* cosines, const float* sines, float sign) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t half = x.size() / 2;
  float* low = x.data();
  float* high = low + half;
  const auto signs = hn::Set(d, sign);
  std::size_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    const auto a = hn::LoadU(d, low + i);
    const auto b = hn::LoadU(d, high + i);
    const auto c = hn::LoadU(d, cosines + i);
    const auto s = hn::Mul(signs, hn::LoadU(d, sines + i));
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, low + i);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, high + i);
  }
  for (; i < half; ++i) {
    const float a = low[i];
    const float b = high[i];
    const float s = sign * sines[i];
    low[i] = a * cosines[i] - b * s;
    high[i] = b * cosines[i] + a * s;
  }
}

// The same for pairs (x[2i], x[2i + 1]).
void RotatePairs(std::span<float> x, const float* cosines, const float* sines, float sign) {
  for (std::size_t i = 0; i < x.size() / 2; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    const float s = sign * sines[i];
    x[2 * i] = a * cosines[i] - b * s;
    x[2 * i + 1] = b * cosines[i] + a * s;
  }
}

}  // namespace winnow::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::ops {

HWY_EXPORT(RotateHead);
HWY_EXPORT(RotatePairs);

void RopeAngles::compute(std::span<const float> frequencies,
                         std::span<const std::int32_t> positions, float factor, bool interleaved) {
  interleaved_ = interleaved;
  half_ = frequencies.size();
  cosines_.ensure(half_ * positions.size());
  sines_.ensure(half_ * positions.size());
  constexpr std::size_t kCost = 32;  // of cos and sin, in simple steps
  cpu::for_rows(positions.size(), half_ * kCost, [&](std::size_t t) {
    for (std::size_t i = 0; i < half_; ++i) {
      // The product is rounded to float, as in the frameworks that trained the model.
      const float angle = static_cast<float>(positions[t]) * frequencies[i];
      cosines_[t * half_ + i] = std::cos(angle) * factor;
      sines_[t * half_ + i] = std::sin(angle) * factor;
    }
  });
}

namespace {

// Rotates every pair by its angle times `sign`.
void rotate_heads(Matrix<float> x, int head_dim, const RopeAngles& angles, float sign) {
  const auto dim = static_cast<std::size_t>(head_dim);
  const std::size_t rotary = angles.rotary();
  assert(x.cols % dim == 0 && rotary <= dim);
  const bool interleaved = angles.interleaved();
  cpu::for_rows(x.rows, x.cols, [&](std::size_t t) {
    const float* cosines = angles.cosines(t).data();
    const float* sines = angles.sines(t).data();
    for (std::size_t h = 0; h < x.cols; h += dim) {
      const auto head = x.row(t).subspan(h, rotary);
      if (interleaved) {
        HWY_DYNAMIC_DISPATCH(RotatePairs)(head, cosines, sines, sign);
      } else {
        HWY_DYNAMIC_DISPATCH(RotateHead)(head, cosines, sines, sign);
      }
    }
  });
}

}  // namespace

void rope(Matrix<float> x, int head_dim, const RopeAngles& angles) {
  rotate_heads(x, head_dim, angles, 1.0F);
}

void rope_backward(Matrix<float> dx, int head_dim, const RopeAngles& angles) {
  rotate_heads(dx, head_dim, angles, -1.0F);
}

}  // namespace winnow::ops
#endif  // HWY_ONCE
