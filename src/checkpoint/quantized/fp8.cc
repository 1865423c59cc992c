// fp8 e4m3 weights with one scale per tensor, per row or per block of rows and columns: DeepSeek
// V3, Qwen 3's FP8 models, Mistral's, AutoFP8's and FBGEMM's.
#include "base/error.h"
#include "checkpoint/quantized/codes.h"
#include "checkpoint/quantized/method.h"

namespace winnow::quantized {
namespace {

class Fp8 : public Method {
 public:
  explicit Fp8(std::optional<Block> block) : block_(block) {}

  [[nodiscard]] std::optional<QuantizedMatrix> find(const Parts& parts) const override {
    const std::optional<StoredTensor> weight = parts.find("weight");
    if (!weight || weight->type != "F8_E4M3") {
      return std::nullopt;
    }
    const StoredTensor codes = parts.get("weight", "F8_E4M3", {parts.rows, parts.cols});
    const std::string scale = parts.has("weight_scale_inv") ? "weight_scale_inv" : "weight_scale";
    QuantizedMatrix matrix = scaled_by(parts, scale, block_of(parts, scale), kFloatsOrExponents);
    matrix.codes = byte_codes(parts, codes);
    matrix.stored_bytes += codes.bytes;
    return matrix;
  }

 private:
  /// The block size of the configuration, or the one that follows from the number of scales.
  [[nodiscard]] Block block_of(const Parts& parts, const std::string& scale) const {
    const StoredTensor scales = parts.get(scale, kFloatsOrExponents);
    if (element_count(scales.shape) == 1) {
      return {parts.rows, parts.cols};
    }
    if (block_) {
      return *block_;
    }
    const std::int64_t rows = scales.shape[0];
    const std::int64_t cols = scales.shape.size() < 2 ? 1 : scales.shape[1];
    if (rows == 0 || cols == 0 || parts.rows % rows != 0 || parts.cols % cols != 0) {
      parts.reject(scale, fmt::format("has shape [{}], which does not divide [{}, {}]",
                                      fmt::join(scales.shape, ", "), parts.rows, parts.cols));
    }
    return {parts.rows / rows, parts.cols / cols};
  }

  std::optional<Block> block_;
};

}  // namespace

std::unique_ptr<const Method> read_fp8(const JsonObject& config) {
  return std::make_unique<Fp8>(read_block(config, "weight_block_size"));
}

}  // namespace winnow::quantized
