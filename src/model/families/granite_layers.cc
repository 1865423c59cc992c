#include "model/families/granite_layers.h"

#include "base/error.h"
#include "model/families/sliding_layers.h"

namespace winnow::model::detail {
namespace {

constexpr const char* kThetas = "layer_rope_theta";

// Sets the RoPE base of each layer; 0: no RoPE.
void set_layer_thetas(const JsonObject& config, ModelSpec& spec) {
  const nlohmann::json* thetas = config.find(kThetas);
  if (thetas == nullptr) {
    return;
  }
  if (!thetas->is_array() || thetas->size() != spec.layers.size()) {
    config.reject(kThetas, fmt::format("a number for each of {} layers", spec.layers.size()));
  }
  nlohmann::json document = config.document();
  nlohmann::json& parameters = document["rope_parameters"];
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const nlohmann::json& theta = thetas->at(i);
    require(theta.is_number(), "{}: {}: expected numbers, got {}", config.where(), kThetas,
            described(theta));
    auto& attention = std::get<AttentionSpec>(spec.layers[i].mixer);
    if (theta == 0) {
      attention.rope.reset();
      continue;
    }
    parameters["rope_theta"] = theta;
    const JsonObject own(document, config.where());
    attention.rope =
        read_rope(own, read_head_sizes(own, attention.head_dim, spec.max_positions), {}).rope;
  }
}

}  // namespace

void set_granite_sliding_layers(const JsonObject& config, ModelSpec& spec) {
  for_each_attention(spec, [](AttentionSpec& attention) { attention.sinks = true; });
  set_layer_thetas(config, spec);
  set_sliding_layers(
      config, spec, [](int layer) { return layer % 4 != 0; }, 128);
}

}  // namespace winnow::model::detail
