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

const std::vector<float>& e2m1_values() {
  static const std::vector<float> values{0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                         -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
  return values;
}

}  // namespace winnow::quantized
