#include "model/latent_attention.h"

#include <algorithm>
#include <array>

#include "model/activations.h"
#include "model/feed_forward.h"
#include "model/mixer_parts.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace winnow::model {
namespace {

void copy(ops::Matrix<const float> from, ops::Matrix<float> to) {
  for (std::size_t t = 0; t < from.rows; ++t) {
    std::ranges::copy(from.row(t), to.row(t).begin());
  }
}

// Each head's query: first the part that is mapped to the latent, then the rotated part.
void project_queries(ops::Context& context, const LatentSpec& latent, const LayerWeights& w,
                     ops::Matrix<const float> input, ops::Matrix<float> queries) {
  if (latent.query_rank == 0) {
    return ops::linear(context, queries, input, w.query, data_or_null(w.query_bias));
  }
  const auto small = take_matrix(*context.workspace, input.rows, latent.query_rank);
  ops::linear(context, small, input, w.latent.query_down, data_or_null(w.latent.query_bias));
  ops::rms_norm(small, small, w.latent.query_norm, latent.norm_eps);
  ops::linear(context, queries, small, w.query);
}

}  // namespace

void project_to_latent(ops::Context& context, const LayerSpec& layer, const LayerWeights& weights,
                       ops::Matrix<const float> input, const LatentHeads& heads) {
  const ops::Workspace::Scope scope(*context.workspace);
  const AttentionSpec& attention = *layer.attention();
  const LatentSpec& latent = *attention.latent;
  const int rotated = attention.rotated_dim();
  const int of_head = latent.key_dim + rotated;
  const auto wide = take_matrix(*context.workspace, input.rows, attention.query_outputs());
  project_queries(context, latent, weights, input, wide);
  for (int h = 0; h < attention.heads; ++h) {
    const auto own = columns(heads.queries, h * attention.head_dim, attention.head_dim);
    copy(columns(wide, h * of_head + latent.key_dim, rotated), columns(own, 0, rotated));
    ops::linear(context, columns(own, rotated, latent.rank),
                columns(wide, h * of_head, latent.key_dim),
                ops::rows_of(weights.latent.key_up, h * latent.rank, latent.rank));
  }
  const auto entry = take_matrix(*context.workspace, input.rows, attention.head_dim);
  ops::linear(context, entry, input, weights.key, data_or_null(weights.key_bias));
  copy(columns(entry, latent.rank, rotated), columns(heads.keys, 0, rotated));
  ops::rms_norm(columns(heads.keys, rotated, latent.rank), columns(entry, 0, latent.rank),
                weights.latent.norm, latent.norm_eps);
}

void expand_latents(ops::Context& context, const AttentionSpec& attention,
                    const LayerWeights& weights, ops::Matrix<const float> attended,
                    ops::Matrix<float> values) {
  const LatentSpec& latent = *attention.latent;
  for (int h = 0; h < attention.heads; ++h) {
    ops::linear(context, columns(values, h * latent.value_dim, latent.value_dim),
                columns(attended, h * attention.head_dim + attention.rotated_dim(), latent.rank),
                ops::rows_of(weights.latent.value_up, h * latent.value_dim, latent.value_dim));
  }
}

}  // namespace winnow::model
