// A weight matrix in one of its storage formats.
#pragma once

#include <array>
#include <cstdint>

#include "base/dtype.h"
#include "base/tensor.h"

namespace winnow::ops {

enum class WeightFormat : std::uint8_t { f32, f16, bf16, int8, int4, mxfp4 };

/// Whether a weight of this format is stored as integers with scales.
constexpr bool is_quantized(WeightFormat format) {
  return format >= WeightFormat::int8;
}

/// The values of mxfp4's codes, doubled: e2m1 has a sign, two bits of exponent and one of
/// mantissa.
inline constexpr std::array<std::int8_t, 16> kTwiceE2m1{0, 1,  2,  3,  4,  6,  8,  12,
                                                        0, -1, -2, -3, -4, -6, -8, -12};

/// Row-major [rows, cols] = [out features, in features], as Hugging Face stores it. Quantised
/// formats keep one bf16 scale per `group` consecutive columns of a row ([rows, cols / group]);
/// value = scale * q with q in [-128, 127] (int8), [-8, 7] (int4, two per byte, the even column in
/// the low nibble, stored + 8) or kTwiceE2m1 (mxfp4, two codes per byte in the same order; only
/// checkpoints supply it, nothing is quantised to it). A view, which does not own its memory.
struct Weight {
  WeightFormat format = WeightFormat::bf16;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const void* data = nullptr;
  const bf16* scales = nullptr;
  int group = 0;
  bool symmetric = false;  // int8: true: no code is -128; false: some may be

  /// Bytes that reading the whole matrix moves.
  [[nodiscard]] std::size_t bytes() const;
};

/// A view of `count` rows from `first` on.
Weight rows_of(const Weight& weight, std::int64_t first, std::int64_t count);

/// A view of a floating-point checkpoint tensor [rows, cols]; no copy.
Weight weight_view(const TensorView& tensor);

/// A weight quantised from another; owns its memory.
class QuantizedWeight {
 public:
  static constexpr int kGroup = 32;

  /// `format` is int8 or int4; cols must be a multiple of kGroup. int4 searches each group's scale
  /// for the least squared error.
  QuantizedWeight(const Weight& source, WeightFormat format);
  [[nodiscard]] Weight view() const;

 private:
  WeightFormat format_;
  std::int64_t rows_;
  std::int64_t cols_;
  Buffer<std::uint8_t> data_;
  Buffer<bf16> scales_;
};

/// row[k] = the float value of weight[index, k].
void dequantize_row(const Weight& weight, std::int64_t index, float* row);

}  // namespace winnow::ops
