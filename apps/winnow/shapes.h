// Architectures of well-known models, for benchmarks with random weights.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "model/config.h"

namespace winnow::cli {

/// smollm2-135m, llama-2-7b, llama-3.2-1b or qwen3-8b; nullopt for anything else.
std::optional<model::ModelSpec> find_shape(std::string_view name);

/// All of them, smallest first.
std::span<const std::string_view> shape_names();

}  // namespace winnow::cli
