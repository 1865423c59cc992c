// Which tensors a layer has: names, shapes, and their places in a tree of the same roles. The one
// list that loading, checking, saving and training go by.
#pragma once

#include <fmt/format.h>

#include <array>
#include <string>

#include "base/tensor.h"
#include "model/spec.h"

namespace winnow::model {

/// The prefix of a layer's tensor names.
inline std::string layer_prefix(int layer) {
  return fmt::format("model.layers.{}.", layer);
}

/// The matrices of a feed-forward network of width `inner`, and its biases if it has any.
template <class Network, class Visit>
void visit_network(const ModelSpec& spec, const FeedForwardSpec& what, int inner,
                   const std::array<std::string, 3>& names, Network& network, const Visit& visit) {
  const auto& [gate, up, down] = names;
  if (what.bias) {
    if (what.gated) {
      visit(gate + ".bias", Shape{inner}, network.gate_bias);
    }
    visit(up + ".bias", Shape{inner}, network.up_bias);
    visit(down + ".bias", Shape{spec.hidden}, network.down_bias);
  }
  if (what.gated) {
    visit(gate + ".weight", Shape{inner, spec.hidden}, network.gate);
  }
  visit(up + ".weight", Shape{inner, spec.hidden}, network.up);
  visit(down + ".weight", Shape{spec.hidden, inner}, network.down);
}

/// The same of all that a layer has behind its attention; `prefix`: of its names.
template <class Layer, class Visit>
void visit_feed_forward(const ModelSpec& spec, const FeedForwardSpec& what,
                        const std::string& prefix, Layer& layer, const Visit& visit) {
  const auto dense = [&](const std::string& at) {
    return std::array{at + "gate_proj", at + "up_proj", at + "down_proj"};
  };
  if (!what.experts) {
    return visit_network(spec, what, what.intermediate, dense(prefix), layer, visit);
  }
  const ExpertsSpec& experts = *what.experts;
  visit(prefix + spec.names.router + ".weight", Shape{experts.count, spec.hidden}, layer.router);
  if (experts.router_bias) {
    visit(prefix + spec.names.router + ".bias", Shape{experts.count}, layer.router_bias);
  }
  if (experts.shared_intermediate > 0) {
    visit_network(spec, what, experts.shared_intermediate, dense(prefix + "shared_expert."), layer,
                  visit);
  }
  if (experts.shared_gate) {
    visit(prefix + "shared_expert_gate.weight", Shape{1, spec.hidden}, layer.shared_gate);
  }
  layer.experts.resize(static_cast<std::size_t>(experts.count));
  for (int i = 0; i < experts.count; ++i) {
    const std::string at = fmt::format("{}experts.{}.", prefix, i);
    visit_network(spec, what, what.intermediate,
                  std::array{at + spec.names.expert_gate, at + spec.names.expert_up,
                             at + spec.names.expert_down},
                  layer.experts[static_cast<std::size_t>(i)], visit);
  }
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
  if (attention.sinks) {
    visit(mixer + "sinks", Shape{attention.heads}, layer.sinks);
  }
  if (attention.output_bias) {
    visit(mixer + "o_proj.bias", Shape{spec.hidden}, layer.output_bias);
  }
  visit(mixer + "q_proj.weight", Shape{attention.query_width(), spec.hidden}, layer.query);
  visit(mixer + "k_proj.weight", Shape{attention.key_width(), spec.hidden}, layer.key);
  visit(mixer + "v_proj.weight", Shape{attention.value_width(), spec.hidden}, layer.value);
  visit(mixer + "o_proj.weight", Shape{spec.hidden, attention.output_width()}, layer.output);
  visit_feed_forward(spec, what.feed_forward, prefix + spec.names.feed_forward + ".", layer, visit);
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
