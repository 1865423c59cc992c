// What families with Mamba 2 beside attention share: Granite 4, Bamba, Falcon H1.
#pragma once

#include <optional>
#include <vector>

#include "model/config_fields.h"

namespace winnow::model::detail {

/// The mixer of the keys "mamba_n_heads", "mamba_d_state" and so on, for layers of `hidden`
/// channels, `width` in all; null: "mamba_expand" says it. Error where "hidden_act", which its
/// convolution takes, is not SiLU.
RecurrentSpec read_mamba(const JsonObject& config, int hidden, std::optional<int> width = {});

/// Error where a state would be larger than what counts in int.
void require_moderate(const JsonObject& config, const RecurrentSpec& mixer);

/// Gives the layers that `recurrent` says the mixer. Error where no layer is left to attend.
void set_mamba_layers(const JsonObject& config, ModelSpec& spec,
                      const std::vector<bool>& recurrent);

}  // namespace winnow::model::detail
