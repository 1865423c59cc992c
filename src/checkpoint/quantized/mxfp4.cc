// gpt-oss's own format (OpenAI 2025): one tensor with the codes of all experts' matrices,
// "<module>_blocks" [experts, rows, cols / 32, 16], and one of scales, "<module>_scales" [experts,
// rows, cols / 32]. Codes are e2m1, two per byte, the even column in the low nibble; a scale is
// 2^(byte - 127).
#include <array>
#include <cmath>

#include "base/error.h"
#include "checkpoint/quantized/codes.h"
#include "checkpoint/quantized/method.h"

namespace winnow::quantized {
namespace {

constexpr std::int64_t kGroup = 32;
constexpr std::int64_t kGroupBytes = kGroup / 2;

/// 2^(byte - 127) for every byte.
const std::array<float, 256>& powers_of_two() {
  static const std::array<float, 256> powers = [] {
    std::array<float, 256> values{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = std::ldexp(1.0F, static_cast<int>(i) - 127);
    }
    return values;
  }();
  return powers;
}

class Mxfp4 : public Method {
 public:
  /// `parts`: the stacked matrices of all experts. Codes are decoded to scaled values: separate
  /// float scales would take a quarter of the codes' memory.
  [[nodiscard]] std::optional<QuantizedMatrix> find(const Parts& parts) const override {
    if (!parts.has("_blocks")) {
      return std::nullopt;
    }
    const StoredTensor blocks = parts.get("_blocks", "U8");
    const StoredTensor scales = parts.get("_scales", "U8 F8_E8M0");
    const std::int64_t groups = parts.cols / kGroup;
    check(parts, "_blocks", blocks, {groups, kGroupBytes}, parts.rows * groups * kGroupBytes);
    check(parts, "_scales", scales, {groups}, parts.rows * groups);
    QuantizedMatrix matrix;
    matrix.rows = parts.rows;
    matrix.cols = parts.cols;
    matrix.stored_bytes = blocks.bytes + scales.bytes;
    matrix.mxfp4 = {blocks.data, scales.data};
    matrix.codes = [codes = blocks.data, exponents = scales.data, groups](
                       std::int64_t begin, std::int64_t end, float* out) {
      const std::vector<float>& values = e2m1_values();
      for (std::int64_t group = begin * groups; group < end * groups; ++group) {
        const float scale = powers_of_two()[std::to_integer<std::size_t>(exponents[group])];
        for (std::int64_t i = 0; i < kGroupBytes; ++i) {
          const auto both = std::to_integer<unsigned>(codes[group * kGroupBytes + i]);
          *out++ = values[both & 15U] * scale;
          *out++ = values[both >> 4] * scale;
        }
      }
    };
    return matrix;
  }

 private:
  /// Checks that the last dimensions are `inner`, and that there are `count` elements in all.
  static void check(const Parts& parts, const std::string& part, const StoredTensor& tensor,
                    const Shape& inner, std::int64_t count) {
    const bool ends = tensor.shape.size() >= inner.size() &&
                      std::equal(inner.rbegin(), inner.rend(), tensor.shape.rbegin());
    if (parts.cols % kGroup != 0 || !ends || element_count(tensor.shape) != count) {
      parts.reject(part,
                   fmt::format("has shape [{}], expected {} x {} weights in blocks of {}",
                               fmt::join(tensor.shape, ", "), parts.rows, parts.cols, kGroup));
    }
  }
};

}  // namespace

std::unique_ptr<const Method> read_mxfp4(const JsonObject& /*config*/) {
  return std::make_unique<const Mxfp4>();
}

}  // namespace winnow::quantized
