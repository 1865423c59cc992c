// A weight matrix that a checkpoint stores as small codes with scales.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/tensor.h"

namespace winnow::quantized {

/// Rows of e2m1 codes in a file, two per byte, the even column in the low nibble, with a scale of
/// 2^(exponent - 127) per 32 columns. Row r of the matrix is row `stride * r` of the file.
struct Mxfp4Rows {
  const std::byte* codes = nullptr;
  const std::byte* exponents = nullptr;
  std::int64_t stride = 1;
};

/// value[row, column] = (code[row, column] - zero) * scale, in fp32. All supported formats have
/// this form; they differ in the storage of codes and in the block of a scale: some rows and a
/// group of columns. Without scales, the codes are the values.
struct QuantizedMatrix {
  /// Decodes rows [begin, end) one after another. Calls may come in any order and from several
  /// threads.
  using ReadCodes = std::function<void(std::int64_t begin, std::int64_t end, float* out)>;

  std::int64_t rows = 0;
  std::int64_t cols = 0;
  ReadCodes codes;

  std::int64_t rows_per_block = 1;
  std::int64_t groups = 1;
  std::vector<std::int32_t> group_of;  // [cols]: the group of each column
  std::vector<float> scales;           // [row blocks, groups]
  std::vector<float> zeros;            // the same, or empty: all 0

  std::size_t stored_bytes = 0;    // bytes of all parts in the file
  std::string_view type;           // ggml's name of the type; empty: not GGUF
  std::optional<Mxfp4Rows> mxfp4;  // the same values
  int integer_bits = 0;            // > 0: codes minus zeros are signed integers of this width

  /// Whether packed weights in memory (4 or 8 bits) represent the values exactly: `mxfp4`, or
  /// integers without zeros whose scales are exact in bf16 and constant over kPackedGroup columns.
  [[nodiscard]] bool stays_packed() const;
};

/// If the zero of all unsigned codes of `bits` bits is the middle one, makes them signed codes
/// without zeros, which have the same values.
void make_signed(QuantizedMatrix& matrix, int bits);

/// Columns that share a scale in memory.
inline constexpr std::int64_t kPackedGroup = 32;

/// Some rows of a stored matrix that form a matrix of the model: `count` rows from `first` on, in
/// blocks of `block` rows that begin every `step` rows.
struct RowSelection {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t step = 1;
  std::int64_t block = 1;

  /// The stored row of row `row` of the selection.
  [[nodiscard]] std::int64_t place(std::int64_t row) const {
    return first + row / block * step + row % block;
  }
};
QuantizedMatrix rows_of(const QuantizedMatrix& whole, const RowSelection& selection);

/// Dequantises the whole matrix to f32, f16 or bf16 (round to nearest even) on all threads.
Buffer<std::byte> dequantized(const QuantizedMatrix& matrix, DType type);

}  // namespace winnow::quantized
