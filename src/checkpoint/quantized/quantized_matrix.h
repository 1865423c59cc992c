// A weight matrix that a checkpoint holds as small codes with scales.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/tensor.h"

namespace winnow::quantized {

/// Rows of e2m1 codes, two a byte, the even column in the low nibble, with a scale of
/// 2^(exponent - 127) for 32 columns, as they lie in a file: row r is the one `stride * r` further.
struct Mxfp4Rows {
  const std::byte* codes = nullptr;
  const std::byte* exponents = nullptr;
  std::int64_t stride = 1;
};

/// value[row, column] = (code[row, column] - zero) * scale, in fp32. All formats that winnow reads
/// are of this form; they differ in how they store the codes and how far a scale reaches: one per
/// block of rows and group of columns. Without scales the codes are the values.
struct QuantizedMatrix {
  /// Writes the codes of rows [begin, end), row after row; rows may be asked for in any order and
  /// by several threads.
  using ReadCodes = std::function<void(std::int64_t begin, std::int64_t end, float* out)>;

  std::int64_t rows = 0;
  std::int64_t cols = 0;
  ReadCodes codes;

  std::int64_t rows_per_block = 1;
  std::int64_t groups = 1;
  std::vector<std::int32_t> group_of;  // [cols]: in which group a column is
  std::vector<float> scales;           // [row blocks, groups]
  std::vector<float> zeros;            // the same, or empty: 0

  std::size_t stored_bytes = 0;    // of all parts in the file
  std::string_view type;           // ggml's name of how they are stored; empty: not GGUF
  std::optional<Mxfp4Rows> mxfp4;  // the same values
  int integer_bits = 0;            // > 0: codes less zeros are integers of so many bits, signed

  /// Whether weights in memory hold the values exactly in 4 or 8 bits: those of `mxfp4`, or
  /// integers without zeros, with a scale that bf16 has for every kPackedGroup columns in a row.
  [[nodiscard]] bool stays_packed() const;
};

/// Where all zeros of unsigned codes of `bits` are the one in the middle, makes them signed codes
/// without zeros, of the same values.
void make_signed(QuantizedMatrix& matrix, int bits);

/// Columns that share a scale in memory.
inline constexpr std::int64_t kPackedGroup = 32;

/// Rows of a matrix that a file holds in place of several: `count` of them, from `first` on, in
/// blocks of `block` that begin every `step` rows.
struct RowSelection {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t step = 1;
  std::int64_t block = 1;

  /// The matrix's row that is row `row` of the selection.
  [[nodiscard]] std::int64_t place(std::int64_t row) const {
    return first + row / block * step + row % block;
  }
};
QuantizedMatrix rows_of(const QuantizedMatrix& whole, const RowSelection& selection);

/// The whole matrix as f32, f16 or bf16 (to nearest even), by all threads.
Buffer<std::byte> dequantized(const QuantizedMatrix& matrix, DType type);

}  // namespace winnow::quantized
