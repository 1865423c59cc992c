// Where a GGUF file has the tensors of a model. It differs from Hugging Face's files in names, in
// the order of some rows, in what it joins, and in what norms count from.
#pragma once

#include <optional>
#include <string>

#include "base/tensor.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/quantized/quantized_matrix.h"
#include "model/spec.h"

namespace winnow::model {

/// A tensor of a model in one of a file.
struct GgufPlace {
  std::string tensor;             // its name in the file; "" when it has no place in GGUF
  Shape shape;                    // of the file's tensor
  std::int64_t first_row = 0;     // of all its dimensions but the last
  int paired_heads = 0;           // > 0: rows of so many heads, whose channels lie in pairs
  bool counts_from_zero = false;  // a norm that transformers counts from 1
};

/// Where the tensor that transformers calls `name` is.
GgufPlace gguf_place(const ModelSpec& spec, const std::string& name, const Shape& shape);

/// The part of the file's tensor that is at `place`, of `shape`; nullopt when the file has no such
/// tensor. Throws Error when it has another shape.
std::optional<gguf::Tensor> gguf_part(const gguf::File& file, const GgufPlace& place,
                                      const Shape& shape);

/// The values of a tensor, rows in transformers' order; rows in one column for a vector.
quantized::QuantizedMatrix gguf_matrix(const gguf::Tensor& tensor, int paired_heads);

}  // namespace winnow::model
