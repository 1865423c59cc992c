// Common parts of families with Mamba 2 and attention: Granite 4, Bamba, Falcon H1.
#pragma once

#include <optional>
#include <vector>

#include "model/config_fields.h"

namespace winnow::model::detail {

/// Reads the mixer from "mamba_n_heads", "mamba_d_state" and so on, for layers of `hidden`
/// channels. `width`: its channels in all; null: "mamba_expand" gives them. Throws Error if
/// "hidden_act", which its convolution uses, is not SiLU.
RecurrentSpec read_mamba(const JsonObject& config, int hidden, std::optional<int> width = {});

/// Throws Error if the state has too many elements for an int.
void require_moderate(const JsonObject& config, const RecurrentSpec& mixer);

/// Sets this mixer in the layers of `recurrent`. Throws Error if no layer has attention.
void set_mamba_layers(const JsonObject& config, ModelSpec& spec,
                      const std::vector<bool>& recurrent);

}  // namespace winnow::model::detail
