// Where a GGUF file has the tensors of a model. It differs from Hugging Face's files in names, in
// the order of some rows and columns, in what it joins, and in the values of some vectors.
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

/// Where a file has a row or column of a tensor, given its place in transformers' order.
using GgufOrder = std::function<std::int64_t(std::int64_t)>;

/// What the converter did to the values of a vector.
enum class GgufChange : std::uint8_t {
  none,
  plus_one,      // a norm that transformers counts from 1
  negative_exp,  // the decays of a recurrent layer: -exp(A_log)
};

/// A tensor of a model in one of a file.
struct GgufPlace {
  std::string tensor;          // its name in the file; "" when it has no place in GGUF
  Shape shape;                 // of the file's tensor
  std::int64_t first_row = 0;  // of all its dimensions but the last
  GgufOrder row = nullptr;     // of the whole of the file's tensor; null: rows are in order
  GgufOrder column = nullptr;  // the same of columns
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
