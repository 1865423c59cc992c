// The text part of vision-language models, which belongs to one of the families.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace winnow::model::detail {

/// The config.json of the text part of `document` where that is one of a model of text and images
/// (Gemma 3, Qwen-VL, Mistral 3 ...), as the family's own files have it; any other as it is.
nlohmann::json text_part(nlohmann::json document);

/// The tensors of such a model with those of its text part under the names that the family's own
/// files have.
TensorMap text_part(TensorMap tensors);

/// The names under which files may have the tensor of this name: its own, then those of models
/// whose text part it belongs to.
std::vector<std::string> stored_names(const std::string& name);

}  // namespace winnow::model::detail
