// Architectures of well-known models, for benchmarks with random weights.
#pragma once

#include <optional>
#include <string_view>

#include "model/config.h"

namespace winnow::cli {

/// smollm2-135m, llama-2-7b, llama-3.2-1b or qwen3-8b; nullopt for anything else.
std::optional<model::ModelSpec> find_shape(std::string_view name);

}  // namespace winnow::cli
