// Which layers of a family have a sliding window.
#pragma once

#include <functional>
#include <vector>

#include "model/config_fields.h"

namespace winnow::model::detail {

using LayerPredicate = std::function<bool(int layer)>;

/// Sets a window of "sliding_window" tokens in the layers that "layer_types" calls
/// "sliding_attention"; without that key, in those for which `by_default(layer)` is true. If the
/// window's key is absent, the window has `assumed` tokens (4,096 in most of transformers'
/// families); null means no window.
void set_sliding_layers(const JsonObject& config, ModelSpec& spec, const LayerPredicate& by_default,
                        int assumed = 4096);

/// By layer: whether "layer_types", or without it `by_default`, makes it a sliding layer.
std::vector<bool> read_layer_types(const JsonObject& config, const ModelSpec& spec,
                                   const LayerPredicate& by_default);

/// Gives the layers of each type the RoPE that config.json has for it (LayerRopes).
void set_layer_ropes(const JsonObject& config, ModelSpec& spec, const std::vector<bool>& sliding,
                     const RopeDefaults& of_full, const RopeDefaults& of_sliding);

/// Qwen's convention: without "layer_types", and if "use_sliding_window", the layers from
/// "max_window_layers" on.
void set_upper_sliding_layers(const JsonObject& config, ModelSpec& spec);

/// Qwen 2 MoE's convention: without "layer_types", and if "use_sliding_window", every second layer
/// below "max_window_layers", from the first on.
void set_alternate_sliding_layers(const JsonObject& config, ModelSpec& spec);

}  // namespace winnow::model::detail
