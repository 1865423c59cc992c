#include "ops/norm.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

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

// out = x * factor * weight, or x * factor * (offset + weight).
template <bool kHasOffset>
HWY_INLINE void ScaleRow(std::span<float> out, std::span<const float> x, float factor,
                         std::span<const float> weight, float offset) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto factors = hn::Set(d, factor);
  const auto offsets = hn::Set(d, offset);
  std::size_t i = 0;
  for (; i + lanes <= x.size(); i += lanes) {
    const auto scaled = hn::Mul(hn::LoadU(d, x.data() + i), factors);
    auto weights = hn::LoadU(d, weight.data() + i);
    if constexpr (kHasOffset) {
      weights = hn::Add(offsets, weights);
    }
    hn::StoreU(hn::Mul(scaled, weights), d, out.data() + i);
  }
  for (; i < x.size(); ++i) {
    out[i] = x[i] * factor * (kHasOffset ? offset + weight[i] : weight[i]);
  }
}

void Scale(std::span<float> out, std::span<const float> x, float factor,
           std::span<const float> weight, float offset) {
  offset == 0.0F ? ScaleRow<false>(out, x, factor, weight, offset)
                 : ScaleRow<true>(out, x, factor, weight, offset);
}

}  // namespace winnow::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::ops {

HWY_EXPORT(SumOfSquares);
HWY_EXPORT(Scale);

namespace {

/// 1 / sqrt(mean(row^2) + eps).
float inverse_root(std::span<const float> row, float eps) {
  const float mean = HWY_DYNAMIC_DISPATCH(SumOfSquares)(row) / static_cast<float>(row.size());
  return 1.0F / std::sqrt(mean + eps);
}

/// offset + weight, in the workspace.
std::span<const float> sum_with(Workspace& workspace, std::span<const float> weight, float offset) {
  const auto sums = workspace.take<float>(weight.size());
  std::ranges::transform(weight, sums.begin(), [offset](float w) { return offset + w; });
  return sums;
}

}  // namespace

void rms_norm(Matrix<float> out, Matrix<const float> x, std::span<const float> weight, float eps,
              float offset) {
  assert(out.rows == x.rows && out.cols == x.cols && weight.size() == x.cols);
  cpu::for_rows(x.rows, x.cols, [&](std::size_t m) {
    HWY_DYNAMIC_DISPATCH(Scale)(out.row(m), x.row(m), inverse_root(x.row(m), eps), weight, offset);
  });
}

// With r = 1 / sqrt(mean(x^2) + eps) and w = offset + weight: out_i = r x_i w_i
// and dr/dx_i = -r^3 x_i / N.
void rms_norm_backward(Workspace& workspace, Matrix<float> dx, std::span<float> dweight,
                       Matrix<const float> dout, Matrix<const float> x,
                       std::span<const float> weight, float eps, float offset) {
  assert(dx.rows == x.rows && dx.cols == x.cols && dout.rows == x.rows && dout.cols == x.cols);
  assert(weight.size() == x.cols);
  assert(dweight.empty() || dweight.size() == x.cols);
  const Workspace::Scope scope(workspace);
  const auto factors = workspace.take<float>(x.rows);
  if (offset != 0.0F) {
    weight = sum_with(workspace, weight, offset);
  }
  cpu::for_rows(x.rows, x.cols, [&](std::size_t m) {
    const auto row = x.row(m);
    const auto gradient = dout.row(m);
    const float factor = inverse_root(row, eps);
    float dot = 0.0F;
    for (std::size_t i = 0; i < x.cols; ++i) {
      dot += gradient[i] * weight[i] * row[i];
    }
    const float along = factor * factor * factor * dot / static_cast<float>(x.cols);
    float* target = dx.row(m).data();
    for (std::size_t i = 0; i < x.cols; ++i) {
      target[i] += factor * weight[i] * gradient[i] - along * row[i];
    }
    factors[m] = factor;
  });
  parallel_ranges(dweight.size(), [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t m = 0; m < x.rows; ++m) {
      const float* row = x.row(m).data();
      const float* gradient = dout.row(m).data();
      for (std::size_t i = begin; i < end; ++i) {
        dweight[i] += gradient[i] * row[i] * factors[m];
      }
    }
  });
}

namespace {

struct Moments {
  float mean;
  float inverse_root;  // 1 / sqrt(variance + eps)
};

Moments moments_of(std::span<const float> row, float eps) {
  const auto count = static_cast<float>(row.size());
  const float mean = std::accumulate(row.begin(), row.end(), 0.0F) / count;
  float squares = 0.0F;
  for (const float x : row) {
    squares += (x - mean) * (x - mean);
  }
  return {mean, 1.0F / std::sqrt(squares / count + eps)};
}

/// The start of row m's weights (N columns), in weights of one row or of several.
std::size_t part_of(std::span<const float> weight, std::size_t columns, std::size_t m) {
  return m % (weight.size() / columns) * columns;
}

}  // namespace

void layer_norm(Matrix<float> out, Matrix<const float> x, std::span<const float> weight,
                std::span<const float> bias, float eps, float offset) {
  assert(out.rows == x.rows && out.cols == x.cols && weight.size() % x.cols == 0);
  assert(bias.empty() || bias.size() == weight.size());
  cpu::for_rows(x.rows, x.cols, [&](std::size_t m) {
    const auto [mean, root] = moments_of(x.row(m), eps);
    const std::size_t part = part_of(weight, x.cols, m);
    const float* row = x.row(m).data();
    float* target = out.row(m).data();
    for (std::size_t i = 0; i < x.cols; ++i) {
      target[i] = (row[i] - mean) * root * (offset + weight[part + i]);
    }
    for (std::size_t i = 0; i < x.cols && !bias.empty(); ++i) {
      target[i] += bias[part + i];
    }
  });
}

// With r = 1 / sqrt(variance + eps), h = r (x - mean) and g the gradient of h:
// dx = r (g - mean(g) - h mean(g h)).
void layer_norm_backward(Workspace& workspace, const LayerNormGradients& gradients,
                         Matrix<const float> dout, Matrix<const float> x,
                         std::span<const float> weight, float eps, float offset) {
  assert(weight.size() % x.cols == 0);
  const Workspace::Scope scope(workspace);
  const auto moments = workspace.take<Moments>(x.rows);
  const auto count = static_cast<float>(x.cols);
  cpu::for_rows(x.rows, x.cols, [&](std::size_t m) {
    moments[m] = moments_of(x.row(m), eps);
    const auto [mean, root] = moments[m];
    const float* w = weight.data() + part_of(weight, x.cols, m);
    const float* row = x.row(m).data();
    const float* gradient = dout.row(m).data();
    float sum = 0.0F;
    float along = 0.0F;
    for (std::size_t i = 0; i < x.cols; ++i) {
      const float g = gradient[i] * (offset + w[i]);
      sum += g;
      along += g * (row[i] - mean) * root;
    }
    float* target = gradients.x.row(m).data();
    for (std::size_t i = 0; i < x.cols; ++i) {
      const float g = gradient[i] * (offset + w[i]);
      target[i] += root * (g - sum / count - (row[i] - mean) * root * along / count);
    }
  });
  // Each column belongs to one thread, which adds the rows in order.
  parallel_ranges(x.cols, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t m = 0; m < x.rows; ++m) {
      const std::size_t part = part_of(weight, x.cols, m);
      for (std::size_t i = begin; i < end; ++i) {
        const float gradient = dout.row(m)[i];
        if (!gradients.weight.empty()) {
          gradients.weight[part + i] +=
              gradient * (x.row(m)[i] - moments[m].mean) * moments[m].inverse_root;
        }
        if (!gradients.bias.empty()) {
          gradients.bias[part + i] += gradient;
        }
      }
    }
  });
}

}  // namespace winnow::ops
#endif  // HWY_ONCE
