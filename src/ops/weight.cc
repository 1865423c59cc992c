#include "ops/weight.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "ops/cpu/gemv.h"

namespace winnow::ops {
namespace {

constexpr auto kGroup = static_cast<std::size_t>(QuantizedWeight::kGroup);

std::size_t count(const Weight& weight) {
  return static_cast<std::size_t>(weight.rows) * static_cast<std::size_t>(weight.cols);
}

WeightFormat format_of(DType type) {
  switch (type) {
    case DType::f32:
      return WeightFormat::f32;
    case DType::f16:
      return WeightFormat::f16;
    case DType::bf16:
      return WeightFormat::bf16;
    default:
      fail("a weight must be fp32, fp16 or bf16, not {}", dtype_name(type));
  }
}

float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::abs(value));
  }
  return largest;
}

/// value / scale, rounded to the nearest integer in [low, high].
int quantize(float value, float inverse_scale, int low, int high) {
  const float q = std::nearbyint(value * inverse_scale);
  return static_cast<int>(std::clamp(q, static_cast<float>(low), static_cast<float>(high)));
}

float inverse(bf16 scale) {
  const float value = to_float(scale);
  return value == 0 ? 0 : 1 / value;
}

void quantize_int8(std::span<const float> values, std::uint8_t* out, bf16& scale) {
  scale = to_bf16(largest_magnitude(values) / 127);
  const float factor = inverse(scale);
  for (std::size_t i = 0; i < values.size(); ++i) {
    out[i] = static_cast<std::uint8_t>(quantize(values[i], factor, -127, 127));
  }
}

/// The scale that fits values = scale * q best, q being the values quantised with `scale`.
bf16 refit_int4(std::span<const float> values, bf16 scale) {
  const float factor = inverse(scale);
  float products = 0;
  float squares = 0;
  for (const float value : values) {
    const auto q = static_cast<float>(quantize(value, factor, -8, 7));
    products += value * q;
    squares += q * q;
  }
  return squares == 0 ? bf16{} : to_bf16(products / squares);
}

float int4_error(std::span<const float> values, bf16 scale) {
  const float step = to_float(scale);
  const float factor = inverse(scale);
  float error = 0;
  for (const float value : values) {
    const float miss = value - step * static_cast<float>(quantize(value, factor, -8, 7));
    error += miss * miss;
  }
  return error;
}

/// The scale of either sign with the least squared error: the range is not symmetric, so the sign
/// chooses which side gets the extra step. Starts from scales that put the largest magnitude at 6
/// to 10 steps (beyond 8 clips it).
bf16 int4_scale(std::span<const float> values) {
  constexpr int kCandidates = 17;
  const float largest = largest_magnitude(values);
  bf16 best{};
  float best_error = int4_error(values, best);
  for (int i = 0; i < kCandidates; ++i) {
    const float steps = 6.0F + 0.25F * static_cast<float>(i);
    for (const float sign : {1.0F, -1.0F}) {
      const bf16 scale = refit_int4(values, to_bf16(sign * largest / steps));
      const float error = int4_error(values, scale);
      if (error < best_error) {
        best = scale;
        best_error = error;
      }
    }
  }
  return best;
}

void quantize_int4(std::span<const float> values, std::uint8_t* out, bf16& scale) {
  scale = int4_scale(values);
  const float factor = inverse(scale);
  for (std::size_t i = 0; i < values.size(); i += 2) {
    const auto even = static_cast<unsigned>(quantize(values[i], factor, -8, 7) + 8);
    const auto odd = static_cast<unsigned>(quantize(values[i + 1], factor, -8, 7) + 8);
    out[i / 2] = static_cast<std::uint8_t>(even | (odd << 4));
  }
}

}  // namespace

std::size_t Weight::bytes() const {
  const std::size_t n = count(*this);
  const auto quantized = [&](std::size_t packed) {
    return packed + n / static_cast<std::size_t>(group) * sizeof(bf16);
  };
  switch (format) {
    case WeightFormat::f32:
      return n * 4;
    case WeightFormat::f16:
    case WeightFormat::bf16:
      return n * 2;
    case WeightFormat::int8:
      return quantized(n);
    case WeightFormat::int4:
      return quantized(n / 2);
  }
  return 0;
}

Weight weight_view(const TensorView& tensor) {
  require(tensor.shape.size() == 2, "a weight must have 2 dimensions, not {}", tensor.shape.size());
  return {.format = format_of(tensor.dtype),
          .rows = tensor.shape[0],
          .cols = tensor.shape[1],
          .data = tensor.data};
}

QuantizedWeight::QuantizedWeight(const Weight& source, WeightFormat format)
    : format_(format), rows_(source.rows), cols_(source.cols) {
  assert(is_quantized(format));
  require(cols_ % kGroup == 0, "a weight of {} columns cannot be quantised in groups of {}", cols_,
          kGroup);
  const auto cols = static_cast<std::size_t>(cols_);
  const std::size_t groups = cols / kGroup;
  const std::size_t group_bytes = format == WeightFormat::int8 ? kGroup : kGroup / 2;
  data_ = Buffer<std::uint8_t>(static_cast<std::size_t>(rows_) * groups * group_bytes);
  scales_ = Buffer<bf16>(static_cast<std::size_t>(rows_) * groups);
  parallel_ranges(static_cast<std::size_t>(rows_), [&](std::size_t begin, std::size_t end, int) {
    std::vector<float> values(cols);
    for (std::size_t row = begin; row < end; ++row) {
      dequantize_row(source, static_cast<std::int64_t>(row), values.data());
      for (std::size_t g = 0; g < groups; ++g) {
        const std::span<const float> group(values.data() + g * kGroup, kGroup);
        const std::size_t index = row * groups + g;
        const auto quantize_group = format == WeightFormat::int8 ? quantize_int8 : quantize_int4;
        quantize_group(group, data_.data() + index * group_bytes, scales_[index]);
      }
    }
  });
}

Weight QuantizedWeight::view() const {
  return {.format = format_,
          .rows = rows_,
          .cols = cols_,
          .data = data_.data(),
          .scales = scales_.data(),
          .group = kGroup};
}

void dequantize_row(const Weight& weight, std::int64_t index, float* row) {
  assert(index >= 0 && index < weight.rows);
  cpu::decode_rows(weight, static_cast<std::size_t>(index),
                   Matrix<float>(row, 1, static_cast<std::size_t>(weight.cols)));
}

}  // namespace winnow::ops
