#include "model/packed_weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "base/threads.h"

namespace winnow::model {
namespace {

constexpr std::int64_t kGroup = ops::QuantizedWeight::kGroup;

/// Half of 2^(exponent - 127), because codes are twice their values; exact in bf16.
bf16 half_scale(std::byte exponent) {
  return to_bf16(std::ldexp(1.0F, std::to_integer<int>(exponent) - 128));
}

ops::WeightFormat format_of(const quantized::QuantizedMatrix& matrix) {
  if (matrix.mxfp4) {
    return ops::WeightFormat::mxfp4;
  }
  return matrix.integer_bits <= 4 ? ops::WeightFormat::int4 : ops::WeightFormat::int8;
}

/// Stores two codes per byte.
void store_int4(std::span<const float> codes, std::byte* out) {
  const auto code = [](float value) { return static_cast<unsigned>(static_cast<int>(value) + 8); };
  for (std::size_t k = 0; k < codes.size(); k += 2) {
    out[k / 2] = std::byte(code(codes[k]) | code(codes[k + 1]) << 4U);
  }
}

void store_int8(std::span<const float> codes, std::byte* out) {
  std::ranges::transform(codes, out,
                         [](float value) { return std::byte(static_cast<int>(value) & 0xFF); });
}

}  // namespace

PackedWeight::PackedWeight(const quantized::QuantizedMatrix& matrix)
    : scales_(static_cast<std::size_t>(matrix.rows * matrix.cols / kGroup)) {
  view_ = {.format = format_of(matrix),
           .rows = matrix.rows,
           .cols = matrix.cols,
           .data = nullptr,
           .scales = scales_.data(),
           .group = kGroup};
  if (matrix.mxfp4) {
    keep_mxfp4(matrix);
  } else {
    pack_integers(matrix);
  }
}

void PackedWeight::keep_mxfp4(const quantized::QuantizedMatrix& matrix) {
  const quantized::Mxfp4Rows& rows = *matrix.mxfp4;
  const std::int64_t groups = matrix.cols / kGroup;
  const std::int64_t row_bytes = matrix.cols / 2;
  view_.data = rows.codes;
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

void PackedWeight::pack_integers(const quantized::QuantizedMatrix& matrix) {
  static_assert(kGroup == quantized::kPackedGroup);
  const bool is_int4 = view_.format == ops::WeightFormat::int4;
  const auto cols = static_cast<std::size_t>(matrix.cols);
  const std::size_t row_bytes = is_int4 ? cols / 2 : cols;
  codes_ = Buffer<std::byte>(static_cast<std::size_t>(matrix.rows) * row_bytes);
  view_.data = codes_.data();
  parallel_ranges(static_cast<std::size_t>(matrix.rows),
                  [&](std::size_t from, std::size_t to, int) {
                    std::vector<float> row(cols);
                    for (std::size_t r = from; r < to; ++r) {
                      const auto at = static_cast<std::int64_t>(r);
                      matrix.codes(at, at + 1, row.data());
                      (is_int4 ? store_int4 : store_int8)(row, codes_.data() + r * row_bytes);
                      const std::int64_t first = at / matrix.rows_per_block * matrix.groups;
                      for (std::size_t g = 0; g < cols / kGroup; ++g) {
                        const std::int64_t group = first + matrix.group_of[g * kGroup];
                        scales_.data()[r * (cols / kGroup) + g] =
                            to_bf16(matrix.scales[static_cast<std::size_t>(group)]);
                      }
                    }
                  });
}

}  // namespace winnow::model
