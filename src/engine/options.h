// Converts the user's options to the engine's configuration.
#pragma once

#include <optional>
#include <string_view>

#include "engine/engine.h"
#include "model/config.h"
#include "ops/kv_page.h"
#include "ops/weight.h"
#include "winnow/llm.h"

namespace winnow::engine {

/// The engine's configuration for `options` on a model. Checks everything; an Error names the
/// flag.
EngineConfig resolve_options(const LoadOptions& options, const model::ModelSpec& model);

/// The rule that a checkpoint was trained for.
kvcache::RuleKind trained_rule(const model::ModelSpec& model);

/// The format to which weights are quantised while they are loaded for the CPU; nullopt: as stored.
/// For a CUDA device they are loaded as stored and converted there.
std::optional<ops::WeightFormat> host_format(const EngineConfig& config);

/// "auto", "fp8" (not on CPUs), "int8" or "int4".
WeightStorage parse_weights(std::string_view name, bool on_cpu);

/// How a model computes: the type of its values, and whether a device multiplies prompts and large
/// batches in fp8.
struct Computation {
  DType type = DType::bf16;
  bool fp8_products = false;
};
/// "bf16" (also "bfloat16" and "auto", as in other programs), "fp32" or "fp8".
Computation parse_dtype(std::string_view name);

/// The number of the CUDA device that "cuda" or "cuda:N" names; nullopt for "cpu".
std::optional<int> parse_device(std::string_view device);

/// "bf16", "fp8", "int8", "q4" or "fp32".
ops::EntryFormat parse_kv_dtype(std::string_view name);

}  // namespace winnow::engine
