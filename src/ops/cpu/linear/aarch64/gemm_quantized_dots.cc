#include <arm_neon.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "base/aarch64/features.h"
#include "base/threads.h"
#include "ops/cpu/linear/aarch64/quantized_tile.h"
#include "ops/cpu/linear/quantized_dots.h"
#include "ops/cpu/rows.h"

namespace winnow::ops::cpu {
namespace {

constexpr std::size_t kGroup = QuantizedWeight::kGroup;

/// Orders a group of inputs like the weights' columns: a byte holds one column, or an even and an
/// odd one, which kernels unpack separately.
void arrange(WeightFormat format, const float* from, float* to) {
  if (format == WeightFormat::int8) {
    std::copy_n(from, kGroup, to);
    return;
  }
  for (std::size_t i = 0; i < kGroup / 2; i += 4) {
    const float32x4x2_t halves = vld2q_f32(from + 2 * i);
    vst1q_f32(to + i, halves.val[0]);
    vst1q_f32(to + kGroup / 2 + i, halves.val[1]);
  }
}

/// The position of column i's high byte; its low byte is `run` positions later.
std::size_t place(std::size_t i, std::size_t run) {
  return i / run * 2 * run + i % run;
}

/// The codes of a group, and its scale: 0 for values that are negligible, and NaN if any value is
/// NaN or infinite.
float quantize(const float* values, std::size_t run, std::int8_t* codes) {
  constexpr float kLargest = 127.0F * 256.0F;
  constexpr float kNothing = 1e-30F;  // its inverse could be infinite
  float32x4_t largest = {};
  for (std::size_t i = 0; i < kGroup; i += 4) {
    largest = vmaxq_f32(largest, vabsq_f32(vld1q_f32(values + i)));  // NaN if any value is NaN
  }
  const float most = vmaxvq_f32(largest);
  const float inverse = most < kNothing ? 0.0F : kLargest / most;
  for (std::size_t i = 0; i < kGroup; i += 8) {
    const int32x4_t first = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(values + i), inverse));
    const int32x4_t last = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(values + i + 4), inverse));
    const int16x8_t q = vcombine_s16(vqmovn_s32(first), vqmovn_s32(last));
    vst1_s8(codes + place(i, run), vrshrn_n_s16(q, 8));
    vst1_s8(codes + place(i, run) + run, vmovn_s16(q));
  }
  return std::isfinite(most) ? most / kLargest : std::numeric_limits<float>::quiet_NaN();
}

ByteInputs in_bytes(Workspace& workspace, Matrix<const float> x, WeightFormat format,
                    std::size_t run) {
  const std::size_t groups = x.cols / kGroup;
  const auto codes = workspace.take<std::int8_t>(x.rows * groups * ByteInputs::kGroupBytes);
  const auto scales = workspace.take<float>(x.rows * groups);
  for_rows(x.rows, x.cols, [&](std::size_t m) {
    for (std::size_t g = 0; g < groups; ++g) {
      float values[kGroup];
      arrange(format, x.row(m).data() + g * kGroup, values);
      const std::size_t at = m * groups + g;
      scales[at] = quantize(values, run, &codes[at * ByteInputs::kGroupBytes]);
    }
  });
  return {codes.data(), scales.data(), x.rows, groups};
}

/// Rows [begin, end) of a target: each block of rows is multiplied with all inputs before the next.
void own_rows(const QuantizedKernel& kernel, const LinearTarget& target, const ByteInputs& x,
              std::size_t begin, std::size_t end) {
  for (std::size_t n = begin; n < end; n += kRowBlock) {
    const QuantizedRows rows(*target.weight, n);
    const float* bias = target.bias == nullptr ? nullptr : target.bias + n;
    for (std::size_t m = 0; m < x.rows; m += kByteTile) {
      const ByteInputs inputs = x.slice(m, std::min(m + kByteTile, x.rows));
      kernel.tile(target.weight->format, rows, inputs, bias,
                  {&target.out.row(m)[n], inputs.rows, rows.count, target.out.stride});
    }
  }
}

}  // namespace

QuantizedRows::QuantizedRows(const Weight& weight, std::size_t first)
    : count(std::min(kRowBlock, static_cast<std::size_t>(weight.rows) - first)) {
  const auto cols = static_cast<std::size_t>(weight.cols);
  const std::size_t bytes = weight.format == WeightFormat::int8 ? cols : cols / 2;
  for (std::size_t r = 0; r < kRowBlock; ++r) {
    const std::size_t row = first + std::min(r, count - 1);
    codes[r] = static_cast<const std::uint8_t*>(weight.data) + row * bytes;
    scales[r] = weight.scales + row * (cols / kGroup);
  }
}

void gemm_quantized_dots(Workspace& workspace, std::span<const LinearTarget> targets,
                         Matrix<const float> x) {
  assert(has_quantized_dots());
  const QuantizedKernel& kernel = aarch64::features().byte_matrices ? kI8mmKernel : kDotProdKernel;
  const ByteInputs inputs = in_bytes(workspace, x, targets.front().weight->format, kernel.run);
  for_weight_rows(targets, [&](const LinearTarget& target, std::size_t begin, std::size_t end,
                               int) { own_rows(kernel, target, inputs, begin, end); });
}

}  // namespace winnow::ops::cpu
