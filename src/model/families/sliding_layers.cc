#include "model/families/sliding_layers.h"

#include "base/error.h"
#include "model/config_fields.h"

namespace winnow::model::detail {
namespace {

constexpr const char* kWindow = "sliding_window";
constexpr const char* kTypes = "layer_types";
constexpr int kAssumedWindowLayers = 28;  // of Qwen's

/// Whether layers may have a window at all: null says that none has.
bool has_window(const JsonObject& config) {
  return config.has(kWindow) || !config.states(kWindow);
}

// The type of each layer; Error for one that is no softmax attention.
std::vector<bool> sliding_by_type(const JsonObject& config, int layers) {
  const nlohmann::json* types = config.find(kTypes);
  if (!types->is_array()) {
    config.reject(kTypes, "an array");
  }
  require(types->size() == static_cast<std::size_t>(layers),
          "{}: {}: expected a type for each of {} layers, got {}", config.where(), kTypes, layers,
          types->size());
  std::vector<bool> sliding;
  for (const auto& type : *types) {
    require(type == "full_attention" || type == "sliding_attention",
            "{}: {}: {} is not supported, expected \"full_attention\" or \"sliding_attention\"",
            config.where(), kTypes, described(type));
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

void slide(const JsonObject& config, ModelSpec& spec, const std::vector<bool>& sliding,
           int assumed) {
  if (std::find(sliding.begin(), sliding.end(), true) == sliding.end()) {
    return;
  }
  const int width = config.integer(kWindow, 1, kMaxPositions, assumed);
  for (std::size_t i = 0; i < sliding.size(); ++i) {
    // A window that is as wide as the longest text hides nothing.
    if (sliding[i] && width < spec.max_positions) {
      std::get<AttentionSpec>(spec.layers[i].mixer).reach = {Reach::Kind::sliding, width};
    }
  }
}

// `slides(layer, limit)`, of "max_window_layers", says which layers do without "layer_types".
template <class Slides>
void set_qwen_sliding_layers(const JsonObject& config, ModelSpec& spec, const Slides& slides) {
  if (config.has(kTypes)) {
    return set_sliding_layers(config, spec, [](int) { return false; });
  }
  if (has_window(config) && config.boolean("use_sliding_window", false)) {
    const int limit = config.integer("max_window_layers", 0, kMaxPositions, kAssumedWindowLayers);
    std::vector<bool> sliding;
    for (int i = 0; i < spec.layer_count(); ++i) {
      sliding.push_back(slides(i, limit));
    }
    slide(config, spec, sliding, 4096);
  }
}

}  // namespace

std::vector<bool> read_layer_types(const JsonObject& config, const ModelSpec& spec,
                                   const LayerPredicate& by_default) {
  if (config.has(kTypes)) {
    return sliding_by_type(config, spec.layer_count());
  }
  std::vector<bool> sliding;
  for (int i = 0; i < spec.layer_count(); ++i) {
    sliding.push_back(by_default(i));
  }
  return sliding;
}

void set_sliding_layers(const JsonObject& config, ModelSpec& spec, const LayerPredicate& by_default,
                        int assumed) {
  const std::vector<bool> sliding = read_layer_types(config, spec, by_default);
  if (has_window(config)) {
    slide(config, spec, sliding, assumed);
  }
}

void set_layer_ropes(const JsonObject& config, ModelSpec& spec, const std::vector<bool>& sliding,
                     const RopeDefaults& of_full, const RopeDefaults& of_sliding) {
  const LayerRopes ropes = read_layer_ropes(
      config, read_head_sizes(config, spec.attention().head_dim, spec.max_positions), of_full,
      of_sliding);
  spec.max_positions = ropes.full.positions;
  for (std::size_t i = 0; i < sliding.size(); ++i) {
    std::get<AttentionSpec>(spec.layers[i].mixer).rope =
        sliding[i] ? ropes.sliding : ropes.full.rope;
  }
}

void set_upper_sliding_layers(const JsonObject& config, ModelSpec& spec) {
  set_qwen_sliding_layers(config, spec, [](int layer, int limit) { return layer >= limit; });
}

void set_alternate_sliding_layers(const JsonObject& config, ModelSpec& spec) {
  set_qwen_sliding_layers(config, spec,
                          [](int layer, int limit) { return layer < limit && layer % 2 == 0; });
}

}  // namespace winnow::model::detail
