// The ways in which published checkpoints are quantised.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "checkpoint/json.h"
#include "checkpoint/quantized/parts.h"

namespace winnow::quantized {

class Method {
 public:
  Method() = default;
  virtual ~Method() = default;
  Method(const Method&) = delete;
  Method& operator=(const Method&) = delete;

  /// The matrix in its parts; nullopt when the checkpoint does not hold it quantised. Throws Error
  /// naming the part that is not as the format has it.
  [[nodiscard]] virtual std::optional<QuantizedMatrix> find(const Parts& parts) const = 0;
};

/// The method of a config.json's "quantization_config". Throws Error naming a method, or a setting
/// of one, that winnow does not read.
std::unique_ptr<const Method> read_method(const JsonObject& config);

// One file each. `config`: "quantization_config".
std::unique_ptr<const Method> read_fp8(const JsonObject& config);
std::unique_ptr<const Method> read_compressed_tensors(const JsonObject& config);
std::unique_ptr<const Method> read_gptq(const JsonObject& config);
std::unique_ptr<const Method> read_awq(const JsonObject& config);
std::unique_ptr<const Method> read_auto_round(const JsonObject& config);
std::unique_ptr<const Method> read_modelopt(const JsonObject& config);
std::unique_ptr<const Method> read_mxfp4(const JsonObject& config);
std::unique_ptr<const Method> read_bitsandbytes(const JsonObject& config);

}  // namespace winnow::quantized
