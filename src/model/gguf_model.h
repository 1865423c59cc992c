// What a GGUF file says of a model, in the words of Hugging Face's files.
#pragma once

#include <map>
#include <string>

#include "base/tensor.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/quantized/quantized_matrix.h"
#include "model/spec.h"

namespace winnow::model {

/// The config.json that describes the model of a GGUF file. Throws Error naming file and key; for
/// an architecture that winnow does not read from GGUF it names that.
std::string config_of_gguf(const gguf::File& file);

/// The name in GGUF of the tensor that transformers calls `name`; "" when there is none.
std::string gguf_name(const std::string& name);

/// Whether rows of this tensor are in GGUF's order rather than transformers': queries and keys of
/// Llamas, whose channels ggml rotates in neighbouring pairs.
bool has_gguf_order(const ModelSpec& spec, const std::string& name);

/// The values of a tensor of `shape`, rows in transformers' order; rows in one column for a vector.
quantized::QuantizedMatrix gguf_matrix(const gguf::Tensor& tensor, const Shape& shape,
                                       int permuted_heads);

}  // namespace winnow::model
