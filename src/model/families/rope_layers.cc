#include "model/families/rope_layers.h"

#include "base/error.h"
#include "model/config_fields.h"

namespace winnow::model::detail {

std::vector<bool> read_rope_layers(const JsonObject& config, int layers) {
  constexpr const char* kKey = "no_rope_layers";  // despite its name, 1 means RoPE
  const int interval = config.integer("no_rope_layer_interval", 1, kMaxLayers, 4);
  std::vector<bool> rotates;
  const nlohmann::json* list = config.find(kKey);
  if (list != nullptr && list->is_array() && list->empty()) {
    list = nullptr;  // an empty list counts as absent, as in transformers
  }
  for (int i = 0; i < layers && list == nullptr; ++i) {
    rotates.push_back((i + 1) % interval != 0);
  }
  if (list == nullptr) {
    return rotates;
  }
  if (!list->is_array() || list->size() != static_cast<std::size_t>(layers)) {
    config.reject(kKey, fmt::format("a number for each of {} layers", layers));
  }
  for (const auto& value : *list) {
    require(value.is_number() || value.is_boolean(), "{}: {}: expected numbers, got {}",
            config.where(), kKey, described(value));
    rotates.push_back(value.is_boolean() ? value.get<bool>() : value != 0);
  }
  return rotates;
}

}  // namespace winnow::model::detail
