// The source of a model's tensors while it is loaded.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/tensor.h"
#include "model/config.h"
#include "model/weights.h"

namespace winnow::model {

class TensorSource {
 public:
  TensorSource() = default;
  virtual ~TensorSource() = default;
  TensorSource(const TensorSource&) = delete;
  TensorSource& operator=(const TensorSource&) = delete;

  [[nodiscard]] virtual bool contains(const std::string& name) const = 0;
  /// The tensor; throws Error when it is missing.
  virtual TensorView get(const std::string& name) = 0;
  /// Its rows [begin, end), if the others are not needed.
  virtual TensorView rows(const std::string& name, int begin, int end) {
    TensorView tensor = get(name);
    tensor.data += tensor.bytes() / static_cast<std::size_t>(tensor.shape[0]) *
                   static_cast<std::size_t>(begin);
    tensor.shape[0] = end - begin;
    return tensor;
  }
  /// The matrix as a weight if it is stored quantised and runs in that form; else nullopt.
  virtual std::optional<ops::Weight> quantized(const std::string& /*name*/) { return std::nullopt; }
  /// Tells that this tensor is no longer needed; its memory may be released.
  virtual void release(const std::string& name) = 0;
};

/// Looks up every tensor of the architecture. Without a format the result refers to the source's
/// memory; with one, matrices are quantised and released one after another.
Weights bind_weights(const ModelSpec& spec, TensorSource& source,
                     std::optional<ops::WeightFormat> format, const OnLayer& on_layer = {});

}  // namespace winnow::model
