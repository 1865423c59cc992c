#include "model/mxfp4_weight.h"

#include <cmath>
#include <cstring>

namespace winnow::model {
namespace {

constexpr std::int64_t kGroup = ops::QuantizedWeight::kGroup;

/// Half of 2^(exponent - 127), as codes stand for twice their values; bf16 holds all of them.
bf16 half_scale(std::byte exponent) {
  return to_bf16(std::ldexp(1.0F, std::to_integer<int>(exponent) - 128));
}

}  // namespace

Mxfp4Weight::Mxfp4Weight(const quantized::QuantizedMatrix& matrix)
    : scales_(static_cast<std::size_t>(matrix.rows * matrix.cols / kGroup)) {
  const quantized::Mxfp4Rows& rows = *matrix.mxfp4;
  const std::int64_t groups = matrix.cols / kGroup;
  const std::int64_t row_bytes = matrix.cols / 2;
  view_ = {.format = ops::WeightFormat::mxfp4,
           .rows = matrix.rows,
           .cols = matrix.cols,
           .data = rows.codes,
           .scales = scales_.data(),
           .group = kGroup};
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t g = 0; g < groups; ++g) {
      scales_.data()[row * groups + g] = half_scale(rows.exponents[row * rows.stride * groups + g]);
    }
  }
  if (rows.stride != 1) {
    codes_ = Buffer<std::byte>(static_cast<std::size_t>(matrix.rows * row_bytes));
    for (std::int64_t row = 0; row < matrix.rows; ++row) {
      std::memcpy(codes_.data() + row * row_bytes, rows.codes + row * rows.stride * row_bytes,
                  static_cast<std::size_t>(row_bytes));
    }
    view_.data = codes_.data();
  }
}

}  // namespace winnow::model
