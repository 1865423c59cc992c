#include "checkpoint/quantized/codes.h"

#include <cstring>

namespace winnow::quantized {
namespace {

const std::uint32_t* words_of(const StoredTensor& tensor) {
  return reinterpret_cast<const std::uint32_t*>(tensor.data);
}

template <class ToFloat>
QuantizedMatrix::ReadCodes byte_reader(const std::byte* data, std::int64_t cols,
                                       const ToFloat& to_value) {
  return [=](std::int64_t begin, std::int64_t end, float* out) {
    for (std::int64_t i = begin * cols; i < end * cols; ++i) {
      *out++ = to_value(std::to_integer<std::uint8_t>(data[i]));
    }
  };
}

/// The value of an e2m3 code: sign, two exponent bits, three mantissa bits in eighths.
float e2m3_value(unsigned code) {
  const unsigned exponent = code >> 3 & 3U;
  const unsigned mantissa = code & 7U;
  const unsigned eighths = exponent == 0 ? mantissa : (8U + mantissa) << (exponent - 1);
  const float size = static_cast<float>(eighths) / 8.0F;
  return (code & 32U) != 0 ? -size : size;
}

}  // namespace

QuantizedMatrix::ReadCodes byte_codes(const Parts& parts, const StoredTensor& tensor) {
  if (tensor.type == "I8") {
    return byte_reader(tensor.data, parts.cols, [](std::uint8_t b) {
      return static_cast<float>(static_cast<std::int8_t>(b));
    });
  }
  return byte_reader(tensor.data, parts.cols, [](std::uint8_t b) { return to_float(f8e4m3{b}); });
}

QuantizedMatrix::ReadCodes packed_columns(const Parts& parts, const StoredTensor& tensor, int bits,
                                          int offset) {
  const std::int64_t words = tensor.shape[1];
  return [words, bits, offset, cols = parts.cols, data = words_of(tensor)](
             std::int64_t begin, std::int64_t end, float* out) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t k = 0; k < cols; ++k) {
        const auto field = static_cast<int>(packed_field(data + row * words, k, bits));
        *out++ = static_cast<float>(field - offset);
      }
    }
  };
}

QuantizedMatrix::ReadCodes nibbles(const Parts& parts, const StoredTensor& tensor,
                                   const std::vector<float>& values, bool high_first) {
  return [values, high_first, cols = parts.cols, data = tensor.data](std::int64_t begin,
                                                                     std::int64_t end, float* out) {
    for (std::int64_t i = begin * cols; i < end * cols; ++i) {
      const auto both = std::to_integer<unsigned>(data[i / 2]);
      *out++ = values[(i % 2 == 0) == high_first ? both >> 4 : both & 15U];
    }
  };
}

QuantizedMatrix::ReadCodes e2m3_codes(const Parts& parts, const StoredTensor& tensor) {
  return [cols = parts.cols, data = tensor.data](std::int64_t begin, std::int64_t end, float* out) {
    const auto byte = [data](std::int64_t at) { return std::to_integer<unsigned>(data[at]); };
    for (std::int64_t at = begin * cols / 4 * 3; at < end * cols / 4 * 3; at += 3) {
      const unsigned word = byte(at) | byte(at + 1) << 8 | byte(at + 2) << 16;
      for (const int shift : {0, 6, 12, 18}) {
        *out++ = e2m3_value(word >> shift & 63U);
      }
    }
  };
}

const std::vector<float>& e2m1_values() {
  static const std::vector<float> values{0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                         -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
  return values;
}

}  // namespace winnow::quantized
