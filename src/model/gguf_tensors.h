// The places of a model's tensors in a GGUF file. It differs from Hugging Face's files in names, in
// the order of some rows and columns, in joined tensors, and in the values of some vectors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/tensor.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/quantized/quantized_matrix.h"
#include "model/spec.h"

namespace winnow::model {

/// The place of a tensor's row or column in the file, by its place in transformers' order.
using GgufOrder = std::function<std::int64_t(std::int64_t)>;

/// How the converter changed the values of a vector.
enum class GgufChange : std::uint8_t {
  none,
  plus_one,      // a norm whose weights in transformers are w - 1
  negative_exp,  // the decays of a recurrent layer: -exp(A_log)
};

/// A tensor of a model as part of a tensor of the file.
struct GgufPlace {
  std::string tensor;          // its name in the file; "" if GGUF has no place for it
  Shape shape;                 // of the file's tensor
  std::int64_t first_row = 0;  // with all dimensions but the last flattened
  GgufOrder row = nullptr;     // in the whole tensor of the file; null: rows are in order
  GgufOrder column = nullptr;  // the same for columns
  GgufChange change = GgufChange::none;
};

/// Where the tensor that transformers calls `name` is. `architecture`: llama.cpp's.
GgufPlace gguf_place(const ModelSpec& spec, const std::string& architecture,
                     const std::string& name, const Shape& shape);

/// The part of the file's tensor that is at `place`, of `shape`; nullopt when the file has no such
/// tensor. Throws Error when it has another shape.
std::optional<gguf::Tensor> gguf_part(const gguf::File& file, const GgufPlace& place,
                                      const Shape& shape);

/// The values of a tensor at `place`, rows and columns in transformers' order; rows in one column
/// for a vector. Changes are not undone.
quantized::QuantizedMatrix gguf_matrix(const gguf::Tensor& tensor, const GgufPlace& place);

/// Undoes a change.
float gguf_original(GgufChange change, float value);

}  // namespace winnow::model
