// The storage layouts of codes.
#pragma once

#include "checkpoint/quantized/parts.h"

namespace winnow::quantized {

/// One code a byte, [rows, cols]: F8_E4M3, or I8.
QuantizedMatrix::ReadCodes byte_codes(const Parts& parts, const StoredTensor& tensor);

/// Fields of `bits` packed along the columns into I32 words, [rows, words]: q + `offset` is stored.
QuantizedMatrix::ReadCodes packed_columns(const Parts& parts, const StoredTensor& tensor, int bits,
                                          int offset);

/// Codes of 4 bits, two a byte, [rows, cols / 2]; `values` are the codes' 16 values. The even
/// column is in the low nibble, or (`high_first`) in the high one.
QuantizedMatrix::ReadCodes nibbles(const Parts& parts, const StoredTensor& tensor,
                                   const std::vector<float>& values, bool high_first = false);

/// Codes of e2m3, the fp6 of the MX format, [rows, cols / 4 * 3]: four in three bytes, from the
/// lowest bits on.
QuantizedMatrix::ReadCodes e2m3_codes(const Parts& parts, const StoredTensor& tensor);

/// The 16 values of e2m1, the fp4 of the MX and NV formats.
const std::vector<float>& e2m1_values();

}  // namespace winnow::quantized
