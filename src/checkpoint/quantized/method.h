// The quantisation methods of published checkpoints.
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

  /// The parts of a matrix; nullopt if the checkpoint does not store it quantised. Throws Error
  /// with the name of a part that does not match the format.
  [[nodiscard]] virtual std::optional<QuantizedMatrix> find(const Parts& parts) const = 0;
};

/// The method in "quantization_config" of a config.json. Throws Error with the name of a method or
/// setting that winnow does not support.
std::unique_ptr<const Method> read_method(const JsonObject& config);

// One source file each. `config`: the "quantization_config".
std::unique_ptr<const Method> read_fp8(const JsonObject& config);
std::unique_ptr<const Method> read_compressed_tensors(const JsonObject& config);
std::unique_ptr<const Method> read_gptq(const JsonObject& config);
std::unique_ptr<const Method> read_awq(const JsonObject& config);
std::unique_ptr<const Method> read_auto_round(const JsonObject& config);
std::unique_ptr<const Method> read_modelopt(const JsonObject& config);
std::unique_ptr<const Method> read_mxfp4(const JsonObject& config);
std::unique_ptr<const Method> read_bitsandbytes(const JsonObject& config);

}  // namespace winnow::quantized
