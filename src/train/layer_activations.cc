#include "train/layer_activations.h"

#include <algorithm>

#include "model/channels.h"
#include "train/decisions.h"

namespace winnow::train {
namespace {

using ops::Matrix;

// Pads so that every matrix begins at a cache line.
std::size_t padded(std::size_t floats) {
  return (floats + 15) / 16 * 16;
}

// take(matrix, columns) for every matrix that the layer has.
template <class Take>
void lay_out_attention(const model::AttentionSpec& attention, LayerMatrices& a, const Take& take) {
  const bool stores = attention.projects_keys();
  const int keys = stores ? attention.key_width() : 0;
  const int values = stores ? attention.value_width() : 0;
  if (attention.query_key_norm != model::AttentionSpec::QueryKeyNorm::none) {
    take(a.raw_queries, attention.query_width());
    take(a.raw_keys, keys);
  }
  if (const auto& latent = attention.latent) {
    take(a.raw_query_latent, latent->query_rank);
    take(a.raw_queries, attention.query_outputs());
    take(a.raw_keys, keys);
  }
  take(a.raw_values, attention.value_norm ? values : 0);
  take(a.queries, attention.query_width());
  take(a.keys, keys);
  take(a.values, values);
  take(a.output_gates, attention.output_gate ? attention.attended_width() : 0);
  take(a.attended, attention.attended_width());
  take(a.normalizers, attention.heads);
}

template <class Take>
void lay_out_recurrent(const model::RecurrentSpec& recurrent, LayerMatrices& a, const Take& take) {
  take(a.recurrent_input, recurrent.channels());
  take(a.recurrent_input_gates, recurrent.gates_input() ? recurrent.channels() : 0);
  take(a.recurrent_gates, recurrent.heads.value_width());
  take(a.rates, recurrent.gates_of_heads() == 2 ? recurrent.heads.value_heads : 0);
  take(a.decays, recurrent.has_matrices() ? recurrent.heads.value_heads : 0);
  take(a.recalled, recurrent.heads.value_width());
}

template <class Take>
void lay_out_decisions(const model::ModelSpec& spec, LayerMatrices& a, const Take& take) {
  const model::AttentionSpec& attention = spec.compressing_attention();
  const auto decisions = static_cast<int>(decision_count(spec));
  take(a.decision_normed, model::borrows_channels(spec) ? 0 : spec.hidden);
  take(a.logits, decisions);
  take(a.noisy, decisions);
  take(a.key_bias, attention.kv_heads);
  if (spec.dmc) {
    take(a.alphas, attention.kv_heads);
    take(a.omegas, attention.kv_heads);
    take(a.merged_keys, attention.key_width());
    take(a.merged_values, attention.value_width());
  }
}

template <class Take>
void lay_out_feed_forward(const model::FeedForwardSpec& what, int hidden, LayerMatrices& a,
                          const Take& take) {
  take(a.gate, what.gated ? what.dense_width() : 0);
  take(a.up, what.dense_width());
  if (!what.experts) {
    return;
  }
  take(a.router_logits, what.experts->count);
  take(a.shared_logits, what.experts->shared_gate ? 1 : 0);
  take(a.expert_gate, what.experts->active * what.intermediate);
  take(a.expert_up, what.experts->active * what.intermediate);
  if (what.experts->beside) {
    for (Matrix<float>* matrix :
         {&a.router_input, &a.experts_input, &a.shared_branch, &a.experts_branch}) {
      take(*matrix, hidden);
    }
  }
}

template <class Take>
void lay_out(const model::ModelSpec& spec, int layer, LayerMatrices& a, const Take& take) {
  const model::LayerSpec& what = spec.layer(layer);
  take(a.normed, spec.hidden);
  if (what.attention() != nullptr) {
    lay_out_attention(*what.attention(), a, take);
  } else {
    lay_out_recurrent(*what.recurrent(), a, take);
  }
  if (spec.decides(layer)) {
    lay_out_decisions(spec, a, take);
  }
  take(a.attention_branch, what.norm_after ? spec.hidden : 0);
  take(a.middle, spec.hidden);
  take(a.mlp_normed, spec.hidden);
  lay_out_feed_forward(what.feed_forward, spec.hidden, a, take);
  take(a.mlp_branch, what.norm_after ? spec.hidden : 0);
  if (spec.layer_embeddings) {
    take(a.fed, spec.hidden);
    take(a.embedding_gates, spec.layer_embeddings->width);
    take(a.embedding_branch, spec.hidden);
  }
}

}  // namespace

std::size_t LayerActivations::bytes(const model::ModelSpec& spec, std::size_t tokens) {
  std::size_t most = 0;
  for (int layer = 0; layer < spec.layer_count(); ++layer) {
    LayerMatrices matrices;
    std::size_t floats = 0;
    lay_out(spec, layer, matrices, [&](Matrix<float>&, int columns) {
      floats += padded(tokens * static_cast<std::size_t>(columns));
    });
    most = std::max(most, floats);
  }
  return most * sizeof(float);
}

LayerActivations::LayerActivations(const model::ModelSpec& spec, std::size_t tokens)
    : tokens_(tokens), memory_(bytes(spec, tokens) / sizeof(float)) {}

void LayerActivations::fit(const model::ModelSpec& spec, int layer) {
  static_cast<LayerMatrices&>(*this) = {};
  float* next = memory_.data();
  lay_out(spec, layer, *this, [&](Matrix<float>& matrix, int columns) {
    matrix = Matrix<float>(next, tokens_, static_cast<std::size_t>(columns));
    next += padded(tokens_ * static_cast<std::size_t>(columns));
  });
}

}  // namespace winnow::train
