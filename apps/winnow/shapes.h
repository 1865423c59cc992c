// Architectures of well-known models, for benchmarks with random weights.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "model/config.h"

namespace winnow::cli {

/// The shape with one of shape_names(); nullopt for any other name.
std::optional<model::ModelSpec> find_shape(std::string_view name);

/// All names.
std::span<const std::string_view> shape_names();

}  // namespace winnow::cli
