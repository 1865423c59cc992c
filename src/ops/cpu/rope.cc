#include "ops/rope.h"

#include <cassert>
#include <cmath>

#include "ops/cpu/rows.h"

namespace winnow::ops {

void RopeAngles::compute(std::span<const float> frequencies,
                         std::span<const std::int32_t> positions) {
  half_ = frequencies.size();
  cosines_.ensure(half_ * positions.size());
  sines_.ensure(half_ * positions.size());
  for (std::size_t t = 0; t < positions.size(); ++t) {
    for (std::size_t i = 0; i < half_; ++i) {
      // The product is rounded to float, as in the frameworks that trained the model.
      const float angle = static_cast<float>(positions[t]) * frequencies[i];
      cosines_[t * half_ + i] = std::cos(angle);
      sines_[t * half_ + i] = std::sin(angle);
    }
  }
}

namespace {

// Turns every plane by its angle times `sign`.
void turn(Matrix<float> x, int head_dim, const RopeAngles& angles, float sign) {
  const auto dim = static_cast<std::size_t>(head_dim);
  assert(x.cols % dim == 0);
  const std::size_t half = dim / 2;
  cpu::for_rows(x.rows, x.cols, [&](std::size_t t) {
    const float* cosine = angles.cosines(t).data();
    const float* sine = angles.sines(t).data();
    for (std::size_t h = 0; h < x.cols; h += dim) {
      float* low = x.row(t).data() + h;
      float* high = low + half;
      for (std::size_t i = 0; i < half; ++i) {
        const float a = low[i];
        const float b = high[i];
        const float s = sign * sine[i];
        low[i] = a * cosine[i] - b * s;
        high[i] = b * cosine[i] + a * s;
      }
    }
  });
}

}  // namespace

void rope(Matrix<float> x, int head_dim, const RopeAngles& angles) {
  turn(x, head_dim, angles, 1.0F);
}

void rope_backward(Matrix<float> dx, int head_dim, const RopeAngles& angles) {
  turn(dx, head_dim, angles, -1.0F);
}

}  // namespace winnow::ops
