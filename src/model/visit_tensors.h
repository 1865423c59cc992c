// Which tensors a layer has: names, shapes, and their places in a tree of the same roles. The one
// list that loading, checking, saving and training go by.
#pragma once

#include <fmt/format.h>

#include <string>

#include "base/tensor.h"
#include "model/spec.h"

namespace winnow::model {

/// The prefix of a layer's tensor names.
inline std::string layer_prefix(int layer) {
  return fmt::format("model.layers.{}.", layer);
}

/// visit(name, shape, member) for every tensor of attention, norms and feed-forward that layer
/// `index` of the model has; `layer` has a member for each role (LayerWeights, train's
/// LayerTensors). Matrices are [outputs, inputs], norms and biases vectors.
template <class Layer, class Visit>
void visit_layer(const ModelSpec& spec, int index, Layer& layer, const Visit& visit) {
  const LayerSpec& what = spec.layer(index);
  const AttentionSpec& attention = *what.attention();
  const std::string prefix = layer_prefix(index);
  const auto norm = [&](const std::string& name, auto& member) {
    if (!name.empty()) {
      visit(prefix + name + ".weight", Shape{spec.hidden}, member);
    }
  };
  norm(spec.names.attention_norm, layer.attention_norm);
  norm(spec.names.attention_post_norm, layer.attention_post_norm);
  norm(spec.names.mlp_norm, layer.mlp_norm);
  norm(spec.names.mlp_post_norm, layer.mlp_post_norm);

  const std::string mixer = prefix + "self_attn.";
  using Norm = AttentionSpec::QueryKeyNorm;
  if (attention.query_key_norm != Norm::none) {
    const bool whole = attention.query_key_norm == Norm::whole;
    visit(mixer + "q_norm.weight", Shape{whole ? attention.query_width() : attention.head_dim},
          layer.query_norm);
    visit(mixer + "k_norm.weight", Shape{whole ? attention.key_width() : attention.head_dim},
          layer.key_norm);
  }
  if (attention.qkv_bias) {
    visit(mixer + "q_proj.bias", Shape{attention.query_width()}, layer.query_bias);
    visit(mixer + "k_proj.bias", Shape{attention.key_width()}, layer.key_bias);
    visit(mixer + "v_proj.bias", Shape{attention.value_width()}, layer.value_bias);
  }
  if (attention.output_bias) {
    visit(mixer + "o_proj.bias", Shape{spec.hidden}, layer.output_bias);
  }
  const std::string mlp = prefix + "mlp.";
  const FeedForwardSpec& feed_forward = what.feed_forward;
  const int inner = feed_forward.intermediate;
  if (feed_forward.bias) {
    if (feed_forward.gated) {
      visit(mlp + "gate_proj.bias", Shape{inner}, layer.gate_bias);
    }
    visit(mlp + "up_proj.bias", Shape{inner}, layer.up_bias);
    visit(mlp + "down_proj.bias", Shape{spec.hidden}, layer.down_bias);
  }
  visit(mixer + "q_proj.weight", Shape{attention.query_width(), spec.hidden}, layer.query);
  visit(mixer + "k_proj.weight", Shape{attention.key_width(), spec.hidden}, layer.key);
  visit(mixer + "v_proj.weight", Shape{attention.value_width(), spec.hidden}, layer.value);
  visit(mixer + "o_proj.weight", Shape{spec.hidden, attention.output_width()}, layer.output);
  if (feed_forward.gated) {
    visit(mlp + "gate_proj.weight", Shape{inner, spec.hidden}, layer.gate);
  }
  visit(mlp + "up_proj.weight", Shape{inner, spec.hidden}, layer.up);
  visit(mlp + "down_proj.weight", Shape{spec.hidden, inner}, layer.down);
}

/// The same for the tensors around the layers: visit(name, shape, member). The head only where it
/// is not the embedding.
template <class Tree, class Visit>
void visit_ends(const ModelSpec& spec, Tree& tree, const Visit& visit) {
  visit(std::string("model.embed_tokens.weight"), Shape{spec.vocab, spec.hidden}, tree.embedding);
  if (!spec.tied_embeddings) {
    visit(std::string("lm_head.weight"), Shape{spec.vocab, spec.hidden}, tree.head);
  }
  visit(std::string("model.norm.weight"), Shape{spec.hidden}, tree.norm);
}

}  // namespace winnow::model
