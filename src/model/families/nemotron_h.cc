// Nemotron-H (NVIDIA 2025): blocks of three kinds: Mamba 2, attention without RoPE, and
// feed-forward networks without a gate. A layer here is a block of the first two kinds and the
// network that follows it, if there is one.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/json_text.h"
#include "model/families/families.h"
#include "model/families/mamba_layers.h"

namespace winnow::model {
namespace {

constexpr const char* kTypes = "layers_block_type";
constexpr const char* kPattern = "hybrid_override_pattern";

enum class Block { mamba, attention, network };

Block block_of(const JsonObject& config, const char* key, const std::string& type) {
  static const std::map<std::string, Block> kBlocks{
      {"mamba", Block::mamba}, {"linear_attention", Block::mamba},   {"M", Block::mamba},
      {"*", Block::attention}, {"attention", Block::attention},      {"mlp", Block::network},
      {"-", Block::network},   {"full_attention", Block::attention},
  };
  const auto found = kBlocks.find(type);
  require(found != kBlocks.end(),
          "{}: {}: {} is not supported, expected Mamba 2, attention or a network", config.where(),
          key, in_quotes(type));
  return found->second;
}

std::vector<Block> read_blocks(const JsonObject& config) {
  std::vector<Block> blocks;
  if (config.has(kPattern) && !config.has(kTypes)) {
    for (const char letter : config.text(kPattern, "")) {
      blocks.push_back(block_of(config, kPattern, std::string(1, letter)));
    }
  } else {
    const nlohmann::json* types = config.find(kTypes);
    if (types == nullptr || !types->is_array()) {
      config.reject(kTypes, "an array");
    }
    for (const auto& type : *types) {
      blocks.push_back(
          block_of(config, kTypes, type.is_string() ? type.get<std::string>() : json_text(type)));
    }
  }
  require(blocks.size() <= static_cast<std::size_t>(detail::kMaxLayers),
          "{}: {} blocks, at most {}", config.where(), blocks.size(), detail::kMaxLayers);
  return blocks;
}

RecurrentSpec read_mixer(const JsonObject& config) {
  for (const char* key : {"use_bias", "mamba_proj_bias"}) {
    require(!config.boolean(key, false), "{}: {}: true is not supported for this family",
            config.where(), key);
  }
  require(detail::read_activation(config, "mamba_hidden_act") == ops::Activation::silu,
          "{}: mamba_hidden_act: expected \"silu\"", config.where());
  RecurrentSpec mixer;
  mixer.kind = RecurrentSpec::Kind::state_space;
  const char* groups = config.has("mamba_n_groups") ? "mamba_n_groups" : "n_groups";
  const char* taps = config.has("mamba_d_conv") ? "mamba_d_conv" : "conv_kernel";
  const char* bias = config.has("mamba_conv_bias") ? "mamba_conv_bias" : "use_conv_bias";
  const char* least = config.has("mamba_dt_min") ? "mamba_dt_min" : "time_step_min";
  mixer.heads = {.key_heads = config.integer(groups, 1, detail::kMaxHeads, 8),
                 .value_heads = config.integer("mamba_num_heads", 1, detail::kMaxHeads, 128),
                 .key_dim = config.integer("ssm_state_size", 1, detail::kMaxHeadDim, 128),
                 .value_dim = config.integer("mamba_head_dim", 1, detail::kMaxHeadDim, 64),
                 .corrects = false};
  require(mixer.heads.value_heads % mixer.heads.key_heads == 0,
          "{}: expected mamba_num_heads to be a multiple of n_groups, got {} and {}",
          config.where(), mixer.heads.value_heads, mixer.heads.key_heads);
  mixer.taps = config.integer(taps, 1, 1024, 4);
  mixer.conv_bias = config.boolean(bias, true);
  mixer.norm_groups = mixer.heads.key_heads;
  mixer.rates.lowest = static_cast<float>(config.number(least, 0.0, 1e6, 0.001));
  detail::require_moderate(config, mixer);
  return mixer;
}

// Files number blocks; the tensors of each are its norm and "mixer".
void rename_blocks(const std::vector<Block>& blocks, TensorNames& names) {
  int layer = -1;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const bool is_network = blocks[i] == Block::network;
    layer += is_network ? 0 : 1;
    const auto rename = [&](const char* own, const char* stored) {
      names.renamed.emplace_back(fmt::format("layers.{}.{}.", layer, own),
                                 fmt::format("layers.{}.{}.", i, stored));
    };
    rename(is_network ? "mlp" : blocks[i] == Block::mamba ? "linear_attn" : "self_attn", "mixer");
    rename(is_network ? "post_attention_layernorm" : "input_layernorm", "norm");
  }
  const std::vector<std::pair<std::string, std::string>> ends{{"embed_tokens.", "embeddings."},
                                                              {"model.norm.", "backbone.norm_f."},
                                                              {"model.norm.", "model.norm_f."},
                                                              {"model.", "backbone."}};
  names.renamed.insert(names.renamed.end(), ends.begin(), ends.end());
}

}  // namespace

ModelSpec describe_nemotron_h(const JsonObject& config) {
  const std::vector<Block> blocks = read_blocks(config);
  nlohmann::json document = config.document();
  document["num_hidden_layers"] = 1;
  ModelSpec spec = detail::read_decoder(JsonObject(document, config.where()),
                                        {.max_positions = 4096,
                                         .head_dim = 128,
                                         .kv_heads = 8,
                                         .norm_eps_key = "layer_norm_epsilon",
                                         .norm_eps = 1e-5,
                                         .intermediate = 21504});
  LayerSpec layer = spec.layers.front();
  std::get<AttentionSpec>(layer.mixer).rope.reset();
  FeedForwardSpec network = layer.feed_forward;
  network.activation = detail::read_activation(config, "mlp_hidden_act", "relu2");
  network.gated = false;
  network.bias = config.boolean("mlp_bias", false);
  layer.feed_forward = {};
  const RecurrentSpec mixer = read_mixer(config);
  spec.layers.clear();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] != Block::network) {
      spec.layers.push_back(layer);
      if (blocks[i] == Block::mamba) {
        spec.layers.back().mixer = mixer;
      }
      continue;
    }
    require(i > 0 && blocks[i - 1] != Block::network,
            "{}: block {} is a network behind none of Mamba 2 or attention: not supported",
            config.where(), i);
    spec.layers.back().feed_forward = network;
  }
  const auto attends = [](const LayerSpec& l) { return l.attention() != nullptr; };
  require(std::ranges::any_of(spec.layers, attends), "{}: no block attends, expected one at least",
          config.where());
  rename_blocks(blocks, spec.names);
  return spec;
}

}  // namespace winnow::model
