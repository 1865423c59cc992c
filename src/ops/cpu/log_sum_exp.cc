#include "ops/log_sum_exp.h"

#include <algorithm>
#include <cmath>

#include "ops/sampling.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/log_sum_exp.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Elements whose exponentials are summed in float; the sums of such blocks are summed in double.
constexpr std::size_t kExpBlock = 256;

// exp(x), but NaN stays NaN; hn::Exp makes it 0.
template <class D, class V>
HWY_INLINE V exp_or_nan(D d, V x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
}

double SumOfExp(std::span<const float> x, float shift) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto offset = hn::Set(d, shift);
  const std::size_t whole = x.size() - x.size() % lanes;
  double total = 0.0;
  std::size_t i = 0;
  while (i < whole) {
    const std::size_t end = std::min(whole, i + kExpBlock);
    auto sum = hn::Zero(d);
    for (; i < end; i += lanes) {
      sum = hn::Add(sum, exp_or_nan(d, hn::Sub(hn::LoadU(d, x.data() + i), offset)));
    }
    total += double{hn::GetLane(hn::SumOfLanes(d, sum))};
  }
  for (; i < x.size(); ++i) {
    total += std::exp(double{x[i]} - double{shift});
  }
  return total;
}

}  // namespace winnow::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::ops {

HWY_EXPORT(SumOfExp);

double log_sum_exp(std::span<const float> x) {
  const float largest = largest_of(x);
  return double{largest} + std::log(HWY_DYNAMIC_DISPATCH(SumOfExp)(x, largest));
}

}  // namespace winnow::ops
#endif  // HWY_ONCE
