#include "model/families/layer_types.h"

#include "base/error.h"

namespace winnow::model::detail {

std::vector<bool> layers_of_type(const JsonObject& config, int layers, std::string_view kind) {
  const nlohmann::json* types = config.find(kLayerTypes);
  if (types == nullptr || !types->is_array()) {
    config.reject(kLayerTypes, "an array");
  }
  require(types->size() == static_cast<std::size_t>(layers),
          "{}: {}: expected a type for each of {} layers, got {}", config.where(), kLayerTypes,
          layers, types->size());
  std::vector<bool> found;
  for (const auto& type : *types) {
    require(type == "full_attention" || type == kind,
            "{}: {}: {} is not supported, expected \"full_attention\" or \"{}\"", config.where(),
            kLayerTypes, described(type), kind);
    found.push_back(type == kind);
  }
  return found;
}

}  // namespace winnow::model::detail
