#include "model/families/qwen_hybrid.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "model/families/layer_types.h"

namespace winnow::model::detail {
namespace {

// Which layers are recurrent.
std::vector<bool> read_recurrent_layers(const JsonObject& config, int layers) {
  if (config.has(kLayerTypes)) {
    return layers_of_type(config, layers, "linear_attention");
  }
  std::vector<bool> recurrent;
  const int interval = config.integer("full_attention_interval", 1, kMaxLayers, 4);
  for (int i = 1; i <= layers; ++i) {
    recurrent.push_back(i % interval != 0);
  }
  return recurrent;
}

RecurrentSpec read_recurrent(const JsonObject& config) {
  RecurrentSpec recurrent;
  recurrent.heads = {.key_heads = config.integer("linear_num_key_heads", 1, kMaxHeads, 16),
                     .value_heads = config.integer("linear_num_value_heads", 1, kMaxHeads, 32),
                     .key_dim = config.integer("linear_key_head_dim", 1, kMaxHeadDim, 128),
                     .value_dim = config.integer("linear_value_head_dim", 1, kMaxHeadDim, 128)};
  recurrent.taps = config.integer("linear_conv_kernel_dim", 1, 1024, 4);
  require(recurrent.heads.value_heads % recurrent.heads.key_heads == 0,
          "{}: expected linear_num_value_heads to be a multiple of linear_num_key_heads, got {} "
          "and {}",
          config.where(), recurrent.heads.value_heads, recurrent.heads.key_heads);
  const double floats =
      1.0 * recurrent.heads.value_heads * recurrent.heads.key_dim * recurrent.heads.value_dim +
      1.0 * recurrent.taps *
          (2.0 * recurrent.heads.key_heads * recurrent.heads.key_dim +
           1.0 * recurrent.heads.value_heads * recurrent.heads.value_dim);
  require(floats < 0x1p30,
          "{}: a recurrent layer keeps {:.0f} numbers of a sequence, expected less than 2^30",
          config.where(), floats);
  return recurrent;
}

}  // namespace

ModelSpec read_qwen_hybrid(const JsonObject& config, FamilyDefaults defaults) {
  defaults.max_positions = 32768;
  defaults.head_dim = 256;
  defaults.rope.partial = true;
  defaults.rope.share = 0.25;
  ModelSpec spec = read_decoder(config, defaults);
  require(spec.layers.front().feed_forward.activation == ops::Activation::silu,
          "{}: hidden_act: expected \"silu\", which the convolutions of recurrent layers take too",
          config.where());
  set_biases(config, spec, {.mlp = false});
  for_each_attention(spec, [](AttentionSpec& attention) {
    attention.query_key_norm = AttentionSpec::QueryKeyNorm::per_head;
    attention.output_gate = true;
  });
  spec.final_norm.kind = NormSpec::Kind::rms_plus_one;
  const std::vector<bool> recurrent = read_recurrent_layers(config, spec.layer_count());
  require(std::ranges::count(recurrent, false) > 0,
          "{}: no layer is \"full_attention\", expected one at least", config.where());
  const RecurrentSpec mixer = read_recurrent(config);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].norm.kind = NormSpec::Kind::rms_plus_one;
    if (recurrent[i]) {
      spec.layers[i].mixer = mixer;
    }
  }
  return spec;
}

}  // namespace winnow::model::detail
