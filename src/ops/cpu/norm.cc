#include "ops/norm.h"

#include <cassert>
#include <cmath>

#include "ops/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/norm.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace winnow::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

float SumOfSquares(std::span<const float> x) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  std::size_t i = 0;
  for (; i + 2 * lanes <= x.size(); i += 2 * lanes) {
    const auto a = hn::LoadU(d, x.data() + i);
    const auto b = hn::LoadU(d, x.data() + i + lanes);
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
  }
  float result = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < x.size(); ++i) {
    result += x[i] * x[i];
  }
  return result;
}

}  // namespace winnow::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::ops {

HWY_EXPORT(SumOfSquares);

void rms_norm(Matrix<float> out, Matrix<const float> x, std::span<const float> weight, float eps) {
  assert(out.rows == x.rows && out.cols == x.cols && weight.size() == x.cols);
  cpu::for_rows(x.rows, x.cols, [&](std::size_t m) {
    const auto row = x.row(m);
    const float mean = HWY_DYNAMIC_DISPATCH(SumOfSquares)(row) / static_cast<float>(x.cols);
    const float factor = 1.0F / std::sqrt(mean + eps);
    float* target = out.row(m).data();
    for (std::size_t i = 0; i < x.cols; ++i) {
      target[i] = row[i] * factor * weight[i];
    }
  });
}

}  // namespace winnow::ops
#endif  // HWY_ONCE
