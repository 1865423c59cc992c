// The storage layouts of codes.
#pragma once

#include "checkpoint/quantized/parts.h"

namespace winnow::quantized {

/// One code per byte, [rows, cols]: F8_E4M3, or I8.
QuantizedMatrix::ReadCodes byte_codes(const Parts& parts, const StoredTensor& tensor);

/// `bits`-bit fields packed along the columns into I32 words, [rows, words]; each is q + `offset`.
QuantizedMatrix::ReadCodes packed_columns(const Parts& parts, const StoredTensor& tensor, int bits,
                                          int offset);

/// 4-bit codes, two per byte, [rows, cols / 2]; `values`: the value of each of the 16 codes. The
/// even column is in the low nibble, or with `high_first` in the high one.
QuantizedMatrix::ReadCodes nibbles(const Parts& parts, const StoredTensor& tensor,
                                   const std::vector<float>& values, bool high_first = false);

/// e2m3 codes, the MX format's fp6, [rows, cols / 4 * 3]: four in three bytes, the first in the
/// lowest bits.
QuantizedMatrix::ReadCodes e2m3_codes(const Parts& parts, const StoredTensor& tensor);

/// The 16 values of e2m1, the fp4 of the MX and NVFP4 formats.
const std::vector<float>& e2m1_values();

}  // namespace winnow::quantized
