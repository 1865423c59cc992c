// Translates a GGUF file's metadata to Hugging Face's config.json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/gguf/gguf_file.h"

namespace winnow::model {

/// The config.json that describes the model of a GGUF file. Throws Error naming file and key; for
/// an architecture that winnow does not read from GGUF it names that.
std::string config_of_gguf(const gguf::File& file);

/// What "general.architecture" of a GGUF file may name.
std::vector<std::string_view> known_gguf_architectures();

/// What llama.cpp calls the file's architecture; empty where the file does not say.
std::string gguf_architecture(const gguf::File& file);

/// Layers behind the model's own, which predict several tokens at once.
int predicting_layers(const gguf::File& file);

}  // namespace winnow::model
