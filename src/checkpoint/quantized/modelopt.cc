// NVIDIA's Model Optimizer: fp8, and NVFP4 with an fp8 scale per 16 weights and one per tensor.
#include "checkpoint/quantized/codes.h"
#include "checkpoint/quantized/method.h"

namespace winnow::quantized {
namespace {

class ModelOpt : public Method {
 public:
  explicit ModelOpt(std::unique_ptr<const Method> fp8) : fp8_(std::move(fp8)) {}

  [[nodiscard]] std::optional<QuantizedMatrix> find(const Parts& parts) const override {
    const std::optional<StoredTensor> weight = parts.find("weight");
    return weight && weight->type == "U8" ? fp4(parts) : fp8_->find(parts);
  }

 private:
  static QuantizedMatrix fp4(const Parts& parts) {
    const StoredTensor codes = parts.get("weight", "U8", {parts.rows, parts.cols / 2});
    if (parts.cols % 2 != 0) {
      parts.reject("weight", "holds two weights a byte, but there is an odd number a row");
    }
    QuantizedMatrix matrix = scaled_by(parts, "weight_scale", {1, 16}, "F8_E4M3");
    const StoredTensor whole = parts.get("weight_scale_2", "F32");
    if (element_count(whole.shape) != 1) {
      parts.reject("weight_scale_2", "is not one number");
    }
    for (float& scale : matrix.scales) {
      scale *= floats_of(whole).front();
    }
    matrix.codes = nibbles(parts, codes, e2m1_values());
    matrix.stored_bytes += codes.bytes;
    return matrix;
  }

  std::unique_ptr<const Method> fp8_;
};

}  // namespace

std::unique_ptr<const Method> read_modelopt(const JsonObject& config) {
  return std::make_unique<ModelOpt>(read_fp8(config));
}

}  // namespace winnow::quantized
