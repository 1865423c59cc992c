// Names of the tensors of a tree.
#pragma once

#include <fmt/format.h>

#include <string>

#include "train/tensors.h"

namespace winnow::train {

/// visit(name, tensor) for every tensor that the tree of such a model can have, matrices and
/// vectors alike.
template <class Tree, class Visit>
void visit_tensors(const ModelConfig& config, Tree& tree, const Visit& visit) {
  visit("model.embed_tokens.weight", tree.embedding);
  if (!config.tied_embeddings) {
    visit("lm_head.weight", tree.head);
  }
  visit("model.norm.weight", tree.norm);
  tree.layers.resize(static_cast<std::size_t>(config.layers));
  for (int i = 0; i < config.layers; ++i) {
    auto& layer = tree.layers[static_cast<std::size_t>(i)];
    const std::string prefix = fmt::format("model.layers.{}.", i);
    const std::string attention = prefix + "self_attn.";
    const std::string mlp = prefix + "mlp.";
    visit(prefix + "input_layernorm.weight", layer.attention_norm);
    visit(prefix + "post_attention_layernorm.weight", layer.mlp_norm);
    visit(attention + "q_norm.weight", layer.query_norm);
    visit(attention + "k_norm.weight", layer.key_norm);
    visit(attention + "q_proj.bias", layer.query_bias);
    visit(attention + "k_proj.bias", layer.key_bias);
    visit(attention + "v_proj.bias", layer.value_bias);
    visit(attention + "o_proj.bias", layer.output_bias);
    visit(mlp + "gate_proj.bias", layer.gate_bias);
    visit(mlp + "up_proj.bias", layer.up_bias);
    visit(mlp + "down_proj.bias", layer.down_bias);
    visit(attention + "q_proj.weight", layer.query);
    visit(attention + "k_proj.weight", layer.key);
    visit(attention + "v_proj.weight", layer.value);
    visit(attention + "o_proj.weight", layer.output);
    visit(mlp + "gate_proj.weight", layer.gate);
    visit(mlp + "up_proj.weight", layer.up);
    visit(mlp + "down_proj.weight", layer.down);
    if (config.dms || config.dmc) {
      visit(decision_name(config, i, "weight"), layer.decision);
      visit(decision_name(config, i, "bias"), layer.decision_bias);
      visit(decision_name(config, i, "norm.weight"), layer.decision_norm);
    }
    if (config.dmc) {
      visit(omega_name(i, "weight"), layer.omega);
      visit(omega_name(i, "bias"), layer.omega_bias);
    }
  }
}

}  // namespace winnow::train
