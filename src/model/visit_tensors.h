// The tensors of a layer: names, shapes, and the members of a tree that hold them. Loading,
// checking, saving and training all use this list.
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

/// The prefix of the tensor names of a layer's DMS adapter.
inline std::string adapter_prefix(int layer) {
  return layer_prefix(layer) + "self_attn.dms_proj_alpha";
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

/// The tensors of a layer's feed-forward and experts; `prefix`: of their names.
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
  if (experts.choice_bias) {
    visit(prefix + spec.names.choice_bias,
          spec.names.choice_bias_is_row ? Shape{1, experts.count} : Shape{experts.count},
          layer.choice_bias);
  }
  if (experts.shared_intermediate > 0) {
    visit_network(spec, what, experts.shared_intermediate,
                  dense(prefix + spec.names.shared_expert + "."), layer, visit);
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

/// The norms of queries and keys, if they have weights.
template <class Layer, class Visit>
void visit_head_norms(const AttentionSpec& attention, const std::string& prefix, Layer& layer,
                      const Visit& visit) {
  using Norm = AttentionSpec::QueryKeyNorm;
  if (attention.query_key_norm == Norm::none || !attention.norm_weights) {
    return;
  }
  const auto shape = [&](std::int64_t heads) {
    switch (attention.query_key_norm) {
      case Norm::own_per_head:
        return Shape{heads, attention.head_dim};
      case Norm::whole:
        return Shape{heads * attention.head_dim};
      default:
        return Shape{attention.head_dim};
    }
  };
  visit(prefix + "q_norm.weight", shape(attention.heads), layer.query_norm);
  if (attention.projects_keys()) {
    visit(prefix + "k_norm.weight", shape(attention.kv_heads), layer.key_norm);
  }
}

/// The tensors of latent attention; `prefix`: of their names. Files join the last two in one
/// tensor (expert_stacks.h).
template <class Layer, class Visit>
void visit_latent_attention(const ModelSpec& spec, const AttentionSpec& attention,
                            const std::string& prefix, Layer& layer, const Visit& visit) {
  const LatentSpec& latent = *attention.latent;
  auto& members = layer.latent;
  const bool has_query_latent = latent.query_rank > 0;
  visit(prefix + "kv_a_layernorm.weight", Shape{latent.rank}, members.norm);
  if (attention.qkv_bias) {
    visit(prefix + "kv_a_proj_with_mqa.bias", Shape{attention.key_width()}, layer.key_bias);
  }
  if (has_query_latent) {
    visit(prefix + "q_a_layernorm.weight", Shape{latent.query_rank}, members.query_norm);
    if (attention.qkv_bias) {
      visit(prefix + "q_a_proj.bias", Shape{latent.query_rank}, members.query_bias);
    }
    visit(prefix + "q_a_proj.weight", Shape{latent.query_rank, spec.hidden}, members.query_down);
  }
  if (attention.output_bias) {
    visit(prefix + "o_proj.bias", Shape{spec.hidden}, layer.output_bias);
  }
  visit(prefix + (has_query_latent ? "q_b_proj.weight" : "q_proj.weight"),
        Shape{attention.query_outputs(), attention.query_inputs(spec.hidden)}, layer.query);
  visit(prefix + "kv_a_proj_with_mqa.weight", Shape{attention.key_width(), spec.hidden}, layer.key);
  visit(prefix + "k_b_proj.weight",
        Shape{std::int64_t{attention.heads} * latent.rank, latent.key_dim}, members.key_up);
  visit(prefix + "v_b_proj.weight", Shape{attention.output_width(), latent.rank}, members.value_up);
  visit(prefix + "o_proj.weight", Shape{spec.hidden, attention.output_width()}, layer.output);
}

/// The tensors of softmax attention; `prefix`: of their names.
template <class Layer, class Visit>
void visit_attention(const ModelSpec& spec, const AttentionSpec& attention,
                     const std::string& prefix, Layer& layer, const Visit& visit) {
  if (attention.latent) {
    return visit_latent_attention(spec, attention, prefix, layer, visit);
  }
  visit_head_norms(attention, prefix, layer, visit);
  if (attention.qkv_bias) {
    visit(prefix + "q_proj.bias", Shape{attention.query_outputs()}, layer.query_bias);
    if (attention.projects_keys()) {
      visit(prefix + "k_proj.bias", Shape{attention.key_width()}, layer.key_bias);
    }
    if (attention.projects_values()) {
      visit(prefix + "v_proj.bias", Shape{attention.value_width()}, layer.value_bias);
    }
  }
  if (attention.sinks) {
    visit(prefix + "sinks", Shape{attention.heads}, layer.sinks);
  }
  if (attention.output_bias) {
    visit(prefix + "o_proj.bias", Shape{spec.hidden}, layer.output_bias);
  }
  const int inputs = spec.attention_inputs();
  visit(prefix + "q_proj.weight", Shape{attention.query_outputs(), inputs}, layer.query);
  if (attention.projects_keys()) {
    visit(prefix + "k_proj.weight", Shape{attention.key_width(), inputs}, layer.key);
  }
  if (attention.projects_values()) {
    visit(prefix + "v_proj.weight", Shape{attention.value_width(), inputs}, layer.value);
  }
  visit(prefix + "o_proj.weight", Shape{spec.hidden, attention.output_width()}, layer.output);
}

/// The tensors of a gated delta net. A tensor of joined projections goes to the first member that
/// it fills.
template <class Layer, class Visit>
void visit_delta_net(const ModelSpec& spec, const RecurrentSpec& recurrent,
                     const std::string& prefix, Layer& layer, const Visit& visit) {
  const ops::DeltaRuleShape& heads = recurrent.heads;
  auto& members = layer.recurrent;
  visit(prefix + "A_log", Shape{heads.value_heads}, members.log_decay);
  visit(prefix + "dt_bias", Shape{heads.value_heads}, members.decay_bias);
  visit(prefix + "norm.weight", Shape{heads.value_dim}, members.norm);
  if (spec.names.joins_recurrent) {
    visit(prefix + "in_proj_qkvz.weight",
          Shape{recurrent.channels() + heads.value_width(), spec.hidden}, members.input);
    visit(prefix + "in_proj_ba.weight", Shape{2 * heads.value_heads, spec.hidden}, members.rate);
  } else {
    visit(prefix + "in_proj_qkv.weight", Shape{recurrent.channels(), spec.hidden}, members.input);
    visit(prefix + "in_proj_z.weight", Shape{heads.value_width(), spec.hidden}, members.gate);
    visit(prefix + "in_proj_b.weight", Shape{heads.value_heads, spec.hidden}, members.rate);
    visit(prefix + "in_proj_a.weight", Shape{heads.value_heads, spec.hidden}, members.decay);
  }
}

/// The tensors of a state space without its projections.
template <class Members, class Visit>
void visit_state_space(const RecurrentSpec& recurrent, const std::string& prefix, Members& members,
                       const Visit& visit) {
  const ops::DeltaRuleShape& heads = recurrent.heads;
  visit(prefix + "A_log", Shape{heads.value_heads}, members.log_decay);
  visit(prefix + "dt_bias", Shape{heads.value_heads}, members.decay_bias);
  visit(prefix + "D", Shape{heads.value_heads}, members.skip);
  if (recurrent.norm != RecurrentSpec::Norm::none) {
    visit(prefix + "norm.weight", Shape{heads.value_width()}, members.norm);
  }
}

/// The tensors of a recurrent mixer (RecurrentSpec); `output`: the member of its output projection.
template <class Layer, class Output, class Visit>
void visit_recurrent(const ModelSpec& spec, const RecurrentSpec& recurrent,
                     const std::string& prefix, Layer& layer, Output& output, const Visit& visit) {
  using Kind = RecurrentSpec::Kind;
  const int width = recurrent.heads.value_width();
  auto& members = layer.recurrent;
  const auto project = [&](const char* name, int rows, auto& member) {
    visit(prefix + "in_proj_" + name + ".weight", Shape{rows, spec.hidden}, member);
  };
  visit(prefix + "conv1d.weight", Shape{recurrent.channels(), 1, recurrent.taps}, members.taps);
  if (recurrent.conv_bias) {
    visit(prefix + "conv1d.bias", Shape{recurrent.channels()}, members.conv_bias);
  }
  if (recurrent.kind == Kind::delta_net) {
    visit_delta_net(spec, recurrent, prefix, layer, visit);
  } else if (recurrent.kind == Kind::short_conv) {
    project("b", recurrent.channels(), members.input_gate);
    project("c", width, members.gate);
    project("x", recurrent.channels(), members.input);
  } else {
    visit_state_space(recurrent, prefix, members, visit);
    project("z", width, members.gate);
    project("xbc", recurrent.channels(), members.input);
    project("dt", recurrent.heads.value_heads, members.decay);
  }
  visit(prefix + "out_proj.weight", Shape{spec.hidden, width}, output);
}

/// The tensors for a layer's own embeddings (LayerEmbeddings).
template <class Layer, class Visit>
void visit_layer_embedding(const ModelSpec& spec, const std::string& prefix, Layer& layer,
                           const Visit& visit) {
  const int width = spec.layer_embeddings->width;
  visit(prefix + "per_layer_input_gate.weight", Shape{width, spec.hidden}, layer.embedding_gate);
  visit(prefix + "per_layer_projection.weight", Shape{spec.hidden, width}, layer.embedding_output);
  visit(prefix + "post_per_layer_input_norm.weight", Shape{spec.hidden}, layer.embedding_norm);
}

/// visit(name, shape, member) for every tensor of mixer, norms and feed-forward that layer
/// `index` of the model has; `layer` has a member for each role (LayerWeights, train's
/// LayerTensors). Matrices are [outputs, inputs], norms and biases vectors.
template <class Layer, class Visit>
void visit_layer(const ModelSpec& spec, int index, Layer& layer, const Visit& visit) {
  const LayerSpec& what = spec.layer(index);
  const std::string prefix = layer_prefix(index);
  const auto norm = [&](const std::string& name, auto& member) {
    if (!name.empty()) {
      visit(prefix + name + ".weight", Shape{spec.hidden}, member);
    }
  };
  const auto bias = [&](const std::string& name, auto& member) {
    if (!name.empty() && what.norm.bias) {
      visit(prefix + name + ".bias", Shape{spec.hidden}, member);
    }
  };
  const bool has_mlp_norm = !what.shares_norm && what.feed_forward.exists();
  const std::string mlp_norm = has_mlp_norm ? spec.names.mlp_norm : "";
  norm(spec.names.attention_norm, layer.attention_norm);
  bias(spec.names.attention_norm, layer.attention_norm_bias);
  norm(spec.names.attention_post_norm, layer.attention_post_norm);
  norm(mlp_norm, layer.mlp_norm);
  bias(mlp_norm, layer.mlp_norm_bias);
  norm(spec.names.mlp_post_norm, layer.mlp_post_norm);
  if (what.feed_forward.experts && what.feed_forward.experts->beside) {
    norm("post_feedforward_layernorm_1", layer.shared_post_norm);
    norm("pre_feedforward_layernorm_2", layer.experts_norm);
    norm("post_feedforward_layernorm_2", layer.experts_post_norm);
    visit(prefix + "router.scale", Shape{spec.hidden}, layer.router_norm);
    visit(prefix + "router.per_expert_scale", Shape{what.feed_forward.experts->count},
          layer.expert_scale);
  }
  if (what.output_scale) {
    visit(prefix + "layer_scalar", Shape{1}, layer.output_scale);
  }
  if (spec.layer_embeddings) {
    visit_layer_embedding(spec, prefix, layer, visit);
  }

  const std::string mixer = prefix + "linear_attn.";
  if (const AttentionSpec* attention = what.attention()) {
    visit_attention(spec, *attention, prefix + "self_attn.", layer, visit);
  } else {
    visit_recurrent(spec, *what.recurrent(), mixer, layer, layer.output, visit);
  }
  if (what.beside) {
    visit_recurrent(spec, *what.beside, mixer, layer, layer.recurrent.output, visit);
  }
  if (what.feed_forward.exists()) {
    visit_feed_forward(spec, what.feed_forward, prefix + spec.names.feed_forward + ".", layer,
                       visit);
  }
}

/// The same for the tensors of a layer's DMS adapter (AdapterWeights). Its `bias` may be missing.
template <class Adapter, class Visit>
void visit_adapter(const ModelSpec& spec, int index, Adapter& adapter, const Visit& visit) {
  using Kind = AdapterSpec::Kind;
  const AdapterSpec& what = spec.dms->adapter;
  const AttentionSpec& attention = *spec.layer(index).attention();
  const std::string prefix = adapter_prefix(index);
  if (what.own_norm) {
    visit(prefix + "_norm.weight", Shape{spec.hidden}, adapter.norm);
  }
  if (what.kind == Kind::gate) {
    const int queries = attention.kv_heads * attention.whole_group() * what.width;
    const int keys = attention.kv_heads * what.width;
    visit(prefix + "_query.weight", Shape{queries, spec.hidden}, adapter.query);
    visit(prefix + "_query.bias", Shape{queries}, adapter.query_bias);
    visit(prefix + "_key.weight", Shape{keys, spec.hidden}, adapter.key);
    visit(prefix + "_query_norm.weight", Shape{what.width}, adapter.query_norm);
    visit(prefix + "_key_norm.weight", Shape{what.width}, adapter.key_norm);
    visit(prefix + "_sinks", Shape{attention.kv_heads, what.sinks, what.width}, adapter.sinks);
    visit(prefix + "_group_bias", Shape{attention.kv_heads, attention.whole_group()},
          adapter.group_bias);
    return;
  }
  const bool deep = what.kind == Kind::mlp;
  if (deep) {
    visit(prefix + "_inner.weight", Shape{what.width, spec.hidden}, adapter.inner);
    visit(prefix + "_inner.bias", Shape{what.width}, adapter.inner_bias);
  }
  visit(prefix + ".weight", Shape{attention.kv_heads, deep ? what.width : spec.hidden},
        adapter.projection);
  visit(prefix + ".bias", Shape{attention.kv_heads}, adapter.bias);
}

/// The same for the tensors around the layers: visit(name, shape, member). The head is included
/// only if it is not the embedding.
template <class Tree, class Visit>
void visit_ends(const ModelSpec& spec, Tree& tree, const Visit& visit) {
  if (!spec.draft_head || spec.draft_head->own_embedding) {
    visit(std::string("model.embed_tokens.weight"), Shape{spec.vocab, spec.hidden}, tree.embedding);
  }
  if (!spec.tied_embeddings && (!spec.draft_head || spec.draft_head->own_output)) {
    visit(std::string("lm_head.weight"), Shape{spec.head_rows(), spec.hidden}, tree.head);
  }
  if (spec.head_bias) {
    visit(std::string("lm_head.bias"), Shape{spec.vocab}, tree.head_bias);
  }
  if (!spec.draft_head || spec.draft_head->own_norm) {
    visit(std::string("model.norm.weight"), Shape{spec.hidden}, tree.norm);
  }
  if (spec.final_norm.bias) {
    visit(std::string("model.norm.bias"), Shape{spec.hidden}, tree.norm_bias);
  }
  if (spec.layer_embeddings) {
    const std::int64_t all = std::int64_t{spec.layer_count()} * spec.layer_embeddings->width;
    visit(std::string("model.embed_tokens_per_layer.weight"),
          Shape{spec.layer_embeddings->vocab, all}, tree.layer_embedding);
    visit(std::string("model.per_layer_model_projection.weight"), Shape{all, spec.hidden},
          tree.layer_projection);
    visit(std::string("model.per_layer_projection_norm.weight"),
          Shape{spec.layer_embeddings->width}, tree.layer_projection_norm);
  }
}

/// The same for the tensors that a head has beside these (DraftHeadWeights).
template <class Head, class Visit>
void visit_draft_head(const ModelSpec& spec, Head& head, const Visit& visit) {
  const DraftHeadSpec& what = *spec.draft_head;
  visit(std::string("fc.weight"), Shape{spec.hidden, what.fused(spec.hidden)}, head.fusion);
  if (what.norms_inputs) {
    visit(std::string("input_norm.weight"), Shape{what.inputs()}, head.input_norm);
  }
  visit(what.widens_attention() ? layer_prefix(0) + "input_layernorm.weight"
                                : std::string("embedding_norm.weight"),
        Shape{spec.hidden}, head.embedding_norm);
}

}  // namespace winnow::model
