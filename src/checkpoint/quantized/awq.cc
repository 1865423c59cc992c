// AWQ (Lin et al. 2024) in the layout of AutoAWQ's "gemm" kernels: codes of 4 bits packed along
// the outputs, eight per word in a special order; scales and zeros per group of inputs.
#include <array>

#include "base/error.h"
#include "checkpoint/quantized/method.h"

namespace winnow::quantized {
namespace {

constexpr int kPerWord = 8;
/// The shift, within its word, of the code of output i of eight.
constexpr std::array<int, kPerWord> kShift{0, 16, 4, 20, 8, 24, 12, 28};

float code_at(const std::uint32_t* words, std::int64_t output) {
  return static_cast<float>(
      (words[output / kPerWord] >> kShift[static_cast<std::size_t>(output % kPerWord)]) & 15U);
}

class Awq : public Method {
 public:
  [[nodiscard]] std::optional<QuantizedMatrix> find(const Parts& parts) const override {
    if (!parts.has("qweight")) {
      return std::nullopt;
    }
    const std::int64_t words = parts.rows / kPerWord;
    if (parts.rows % kPerWord != 0) {
      parts.reject("qweight",
                   fmt::format("holds eight outputs a word, but there are {}", parts.rows));
    }
    const StoredTensor codes = parts.get("qweight", "I32", {parts.cols, words});
    const StoredTensor scales = parts.get("scales", kFloats);
    if (scales.shape.size() != 2 || scales.shape[1] != parts.rows || scales.shape[0] == 0 ||
        parts.cols % scales.shape[0] != 0) {
      parts.reject("scales", fmt::format("has shape [{}], expected [groups, {}]",
                                         fmt::join(scales.shape, ", "), parts.rows));
    }
    QuantizedMatrix matrix;
    matrix.rows = parts.rows;
    matrix.cols = parts.cols;
    matrix.groups = scales.shape[0];
    matrix.group_of = groups_in_order(parts.cols, parts.cols / matrix.groups);
    read_grid(parts, scales, matrix);
    matrix.codes = [=, cols = parts.cols,
                    data = reinterpret_cast<const std::uint32_t*>(codes.data)](
                       std::int64_t begin, std::int64_t end, float* out) {
      for (std::int64_t k = 0; k < cols; ++k) {
        for (std::int64_t row = begin; row < end; ++row) {
          out[(row - begin) * cols + k] = code_at(data + k * words, row);
        }
      }
    };
    make_signed(matrix, 4);
    matrix.stored_bytes += codes.bytes;
    return matrix;
  }

 private:
  /// Reads scales and, unless the codes are symmetric, zeros: both [groups, outputs].
  static void read_grid(const Parts& parts, const StoredTensor& scales, QuantizedMatrix& matrix) {
    const std::vector<float> values = floats_of(scales);
    const std::int64_t words = parts.rows / kPerWord;
    const StoredTensor zeros = parts.get("qzeros", "I32", {matrix.groups, words});
    const auto* data = reinterpret_cast<const std::uint32_t*>(zeros.data);
    matrix.scales.resize(values.size());
    matrix.zeros.resize(values.size());
    for (std::int64_t g = 0; g < matrix.groups; ++g) {
      for (std::int64_t row = 0; row < parts.rows; ++row) {
        const auto at = static_cast<std::size_t>(row * matrix.groups + g);
        matrix.scales[at] = values[static_cast<std::size_t>(g * parts.rows + row)];
        matrix.zeros[at] = code_at(data + g * words, row);
      }
    }
    matrix.stored_bytes = scales.bytes + zeros.bytes;
  }
};

}  // namespace

std::unique_ptr<const Method> read_awq(const JsonObject& config) {
  const int bits = config.integer("bits", 1, 16, config.integer("w_bit", 1, 16, 4));
  require(bits == 4, "{}: bits: expected 4, got {}", config.where(), bits);
  const std::string version = config.text("version", config.text("format", "gemm"));
  require(version == "gemm" || version == "GEMM",
          "{}: version {} is not supported, expected \"gemm\"", config.where(), in_quotes(version));
  return std::make_unique<Awq>();
}

}  // namespace winnow::quantized
