#include "model/families/sliding_layers.h"

#include "base/error.h"
#include "model/config_fields.h"
#include "model/families/layer_types.h"

namespace winnow::model::detail {
namespace {

constexpr const char* kWindow = "sliding_window";
constexpr int kAssumedWindowLayers = 28;  // Qwen's default

/// Whether layers may have a window at all: null means that none has.
bool has_window(const JsonObject& config) {
  return config.has(kWindow) || !config.states(kWindow);
}

void slide(const JsonObject& config, ModelSpec& spec, const std::vector<bool>& sliding,
           int assumed) {
  if (std::find(sliding.begin(), sliding.end(), true) == sliding.end()) {
    return;
  }
  const int width = config.integer(kWindow, 1, kMaxPositions, assumed);
  for (std::size_t i = 0; i < sliding.size(); ++i) {
    // A window as wide as the longest text hides nothing.
    if (sliding[i] && width < spec.max_positions) {
      std::get<AttentionSpec>(spec.layers[i].mixer).reach = {Reach::Kind::sliding, width};
    }
  }
}

// Without "layer_types", `slides(layer, limit)` chooses the layers; limit is "max_window_layers".
template <class Slides>
void set_qwen_sliding_layers(const JsonObject& config, ModelSpec& spec, const Slides& slides) {
  if (config.has(kLayerTypes)) {
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
  if (config.has(kLayerTypes)) {
    return layers_of_type(config, spec.layer_count(), "sliding_attention");
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
