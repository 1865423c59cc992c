// Architectures of well-known models, for benchmarks with random weights.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "engine/engine.h"
#include "model/config.h"

namespace winnow::cli {

/// The shape of one of shape_names(); nullopt for anything else.
std::optional<model::ModelSpec> find_shape(std::string_view name);

/// Bytes of a model's matrices in a format; `as_stored` is bf16.
double weight_bytes(const model::ModelSpec& spec, engine::WeightStorage storage);

/// All of them, smallest first.
std::span<const std::string_view> shape_names();

}  // namespace winnow::cli
