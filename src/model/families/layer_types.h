#pragma once

#include <string_view>
#include <vector>

#include "model/config_fields.h"

namespace winnow::model::detail {

/// The key that names the kind of each layer.
inline constexpr const char* kLayerTypes = "layer_types";

/// Which of `layers` layers have the type `kind` under "layer_types", which must be there. Throws
/// Error for a type other than `kind` and "full_attention", or if a layer has no type.
std::vector<bool> layers_of_type(const JsonObject& config, int layers, std::string_view kind);

}  // namespace winnow::model::detail
