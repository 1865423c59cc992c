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

/// The values of "general.architecture" in GGUF files that winnow reads.
std::vector<std::string_view> known_gguf_architectures();

/// llama.cpp's name of the file's architecture; empty if the file has none.
std::string gguf_architecture(const gguf::File& file);

/// The number of layers after the model's own that predict several tokens at once.
int predicting_layers(const gguf::File& file);

}  // namespace winnow::model
