#pragma once

#include <string_view>
#include <vector>

#include "model/config_fields.h"

namespace winnow::model::detail {

/// The key that names the kind of each layer.
inline constexpr const char* kLayerTypes = "layer_types";

/// Which layers `layer_types`, which must be there, says to be of `kind`; Error when it has a type
/// other than that and "full_attention", or not one for each of `layers`.
std::vector<bool> layers_of_type(const JsonObject& config, int layers, std::string_view kind);

}  // namespace winnow::model::detail
