// The text part of vision-language models, which is a model of one of the families.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace winnow::model::detail {

/// If `document` is the config.json of a model of text and images (Gemma 3, Qwen-VL, Mistral 3
/// ...), the config.json of its text part, as the family's own files have it; else `document`.
nlohmann::json text_part(nlohmann::json document);

/// The tensors of such a model; tensors of the text part get the names of the family's own
/// files.
TensorMap text_part(TensorMap tensors);

/// The names that a tensor may have in files: its own name, then its names in models with this
/// text part.
std::vector<std::string> stored_names(const std::string& name);

}  // namespace winnow::model::detail
