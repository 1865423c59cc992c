// Which layers of a family attend within a sliding window.
#pragma once

#include "checkpoint/json.h"
#include "model/spec.h"

namespace winnow::model::detail {

/// Gives a reach of "sliding_window" tokens to the layers that "layer_types" names
/// ("sliding_attention"); without that key, to those for which `by_default(layer)` says so. A
/// window that the file does not speak of is of transformers' 4,096 tokens; null means none.
void set_sliding_layers(const JsonObject& config, ModelSpec& spec, bool (*by_default)(int layer));

/// Qwen's convention: without "layer_types", and if "use_sliding_window", the layers from
/// "max_window_layers" on.
void set_upper_sliding_layers(const JsonObject& config, ModelSpec& spec);

}  // namespace winnow::model::detail
