#include "ops/weight.h"

#include <algorithm>
#include <cassert>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "ops/cpu/linear/gemv.h"
#include "ops/cpu/linear/quantize.h"

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

std::size_t code_bytes(const Weight& weight) {
  const std::size_t n = count(weight);
  switch (weight.format) {
    case WeightFormat::f32:
      return n * 4;
    case WeightFormat::f16:
    case WeightFormat::bf16:
      return n * 2;
    case WeightFormat::int8:
      return n;
    case WeightFormat::int4:
    case WeightFormat::mxfp4:
      return n / 2;
  }
  return 0;
}

}  // namespace

Weight rows_of(const Weight& weight, std::int64_t first, std::int64_t count) {
  Weight part = weight;
  part.rows = first;
  part.data = static_cast<const std::byte*>(weight.data) + code_bytes(part);
  part.rows = count;
  if (weight.scales != nullptr) {
    part.scales += first * (weight.cols / weight.group);
  }
  return part;
}

std::size_t Weight::bytes() const {
  const std::size_t scales_in_all =
      is_quantized(format) ? count(*this) / static_cast<std::size_t>(group) : 0;
  return code_bytes(*this) + scales_in_all * sizeof(bf16);
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
  assert(format == WeightFormat::int8 || format == WeightFormat::int4);
  require(cols_ % kGroup == 0, "a weight of {} columns cannot be quantised in groups of {}", cols_,
          kGroup);
  const auto cols = static_cast<std::size_t>(cols_);
  const std::size_t groups = cols / kGroup;
  const std::size_t group_bytes = format == WeightFormat::int8 ? kGroup : kGroup / 2;
  data_ = Buffer<std::uint8_t>(static_cast<std::size_t>(rows_) * groups * group_bytes);
  scales_ = Buffer<bf16>(static_cast<std::size_t>(rows_) * groups);
  constexpr std::size_t kRowsTogether = 16;
  const auto rows = static_cast<std::size_t>(rows_);
  const std::size_t blocks = (rows + kRowsTogether - 1) / kRowsTogether;
  parallel_ranges(blocks, [&](std::size_t first, std::size_t last, int) {
    std::vector<float> values(kRowsTogether * cols);
    for (std::size_t block = first; block < last; ++block) {
      const std::size_t begin = block * kRowsTogether;
      const std::size_t end = std::min(begin + kRowsTogether, rows);
      for (std::size_t row = begin; row < end; ++row) {
        dequantize_row(source, static_cast<std::int64_t>(row), &values[(row - begin) * cols]);
      }
      cpu::quantize_groups(format, std::span(values).first((end - begin) * cols),
                           data_.data() + begin * groups * group_bytes,
                           scales_.data() + begin * groups);
    }
  });
}

Weight QuantizedWeight::view() const {
  return {.format = format_,
          .rows = rows_,
          .cols = cols_,
          .data = data_.data(),
          .scales = scales_.data(),
          .group = kGroup,
          .symmetric = true};
}

void dequantize_row(const Weight& weight, std::int64_t index, float* row) {
  assert(index >= 0 && index < weight.rows);
  cpu::dequantize_rows(weight, static_cast<std::size_t>(index),
                       Matrix<float>(row, 1, static_cast<std::size_t>(weight.cols)));
}

}  // namespace winnow::ops
