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
  /// Rows [begin, end) of it, where nobody wants the others.
  virtual TensorView rows(const std::string& name, int begin, int end) {
    TensorView tensor = get(name);
    tensor.data += tensor.bytes() / static_cast<std::size_t>(tensor.shape[0]) *
                   static_cast<std::size_t>(begin);
    tensor.shape[0] = end - begin;
    return tensor;
  }
  /// The matrix as a weight that is stored quantised and runs as it is; nullopt for others.
  virtual std::optional<ops::Weight> quantized(const std::string& /*name*/) { return std::nullopt; }
  /// This tensor is no longer needed; its memory may be released.
  virtual void release(const std::string& name) = 0;
};

/// Looks up every tensor that the architecture has. Without a format the result sees the source's
/// memory; with one, every matrix is quantised and released one after another.
Weights bind_weights(const ModelSpec& spec, TensorSource& source,
                     std::optional<ops::WeightFormat> format);

}  // namespace winnow::model
