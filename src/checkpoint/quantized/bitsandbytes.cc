// bitsandbytes: nf4 and fp4 (Dettmers et al. 2023), whose block scales may themselves be quantised,
// and int8 with a scale per row (Dettmers et al. 2022).
#include <cstring>

#include "base/error.h"
#include "checkpoint/quantized/codes.h"
#include "checkpoint/quantized/method.h"

namespace winnow::quantized {
namespace {

constexpr const char* kState = "weight.quant_state.bitsandbytes__";

class BitsAndBytes : public Method {
 public:
  [[nodiscard]] std::optional<QuantizedMatrix> find(const Parts& parts) const override {
    for (const char* type : {"nf4", "fp4"}) {
      if (parts.has(std::string(kState) + type)) {
        return four_bits(parts, std::string(kState) + type);
      }
    }
    return parts.has("SCB") ? std::optional(int8(parts)) : std::nullopt;
  }

 private:
  static QuantizedMatrix int8(const Parts& parts) {
    const StoredTensor codes = parts.get("weight", "I8", {parts.rows, parts.cols});
    QuantizedMatrix matrix = scaled_by(parts, "SCB", {1, parts.cols});
    for (float& scale : matrix.scales) {
      scale /= 127.0F;
    }
    matrix.codes = byte_codes(parts, codes);
    matrix.stored_bytes += codes.bytes;
    return matrix;
  }

  static QuantizedMatrix four_bits(const Parts& parts, const std::string& state_name) {
    const StoredTensor text = parts.get(state_name, "U8");
    const std::string where = parts.module() + "." + state_name;
    const nlohmann::json document =
        parse_json({reinterpret_cast<const char*>(text.data), text.bytes}, where);
    const JsonObject state(document, where);
    const std::int64_t block = state.integer("blocksize", 2, 1 << 20);
    if (parts.cols % block != 0) {
      parts.reject("weight", fmt::format("has blocks of {} in rows of {}", block, parts.cols));
    }
    const StoredTensor codes = parts.get("weight", "U8", {(parts.rows * parts.cols + 1) / 2, 1});
    const StoredTensor values = parts.get("weight.quant_map", "F32", {16});
    QuantizedMatrix matrix;
    matrix.rows = parts.rows;
    matrix.cols = parts.cols;
    matrix.groups = parts.cols / block;
    matrix.group_of = groups_in_order(parts.cols, block);
    matrix.scales = read_scales(parts, state, parts.rows * matrix.groups);
    matrix.codes = nibbles(parts, codes, floats_of(values), /*high_first=*/true);
    matrix.stored_bytes = codes.bytes + parts.find("weight.absmax")->bytes;
    return matrix;
  }

  static std::vector<float> read_scales(const Parts& parts, const JsonObject& state,
                                        std::int64_t count) {
    if (!parts.has("weight.nested_absmax")) {
      return floats_of(parts.get("weight.absmax", "F32", {count}));
    }
    const StoredTensor codes = parts.get("weight.absmax", "U8", {count});
    const std::int64_t block = state.integer("nested_blocksize", 1, 1 << 20);
    const std::vector<float> values = floats_of(parts.get("weight.nested_quant_map", "F32", {256}));
    const std::vector<float> outer =
        floats_of(parts.get("weight.nested_absmax", "F32", {(count + block - 1) / block}));
    const auto offset = static_cast<float>(state.number("nested_offset", -1e30, 1e30, 0.0));
    std::vector<float> scales(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < scales.size(); ++i) {
      scales[i] = values[std::to_integer<std::size_t>(codes.data[i])] *
                      outer[i / static_cast<std::size_t>(block)] +
                  offset;
    }
    return scales;
  }
};

}  // namespace

std::unique_ptr<const Method> read_bitsandbytes(const JsonObject& /*config*/) {
  return std::make_unique<BitsAndBytes>();
}

}  // namespace winnow::quantized
