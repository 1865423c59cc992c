#include "train/latent_attention.h"

#include "model/mixer_parts.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "train/layer_parts.h"

namespace winnow::train::detail {
namespace {

using model::columns;
using ops::Matrix;

void copy_columns(Matrix<const float> from, Matrix<float> to) {
  for (std::size_t t = 0; t < from.rows; ++t) {
    std::ranges::copy(from.row(t), to.row(t).begin());
  }
}

// Rows of a gradient; empty if it is not computed.
Matrix<float> rows_of(Matrix<float> gradient, int first, int count) {
  const auto begin = static_cast<std::size_t>(first);
  return gradient.data == nullptr ? gradient
                                  : gradient.slice(begin, begin + static_cast<std::size_t>(count));
}

const float* bias_or_null(std::span<const float> bias) {
  return bias.empty() ? nullptr : bias.data();
}

// The columns of one head. Projected: the part that its matrix maps to the latent, and the part
// that RoPE rotates. As attention sees them: the rotated part, then the latent.
struct HeadColumns {
  HeadColumns(const model::AttentionSpec& attention, int head)
      : latent(*attention.latent),
        rotated(attention.rotated_dim()),
        projected(head * (latent.key_dim + rotated)),
        seen(head * attention.head_dim) {}

  template <class T>
  [[nodiscard]] Matrix<T> plain_part(Matrix<T> of_projected) const {
    return columns(of_projected, projected, latent.key_dim);
  }
  template <class T>
  [[nodiscard]] Matrix<T> rotated_part(Matrix<T> of_projected) const {
    return columns(of_projected, projected + latent.key_dim, rotated);
  }
  template <class T>
  [[nodiscard]] Matrix<T> seen_rotated_part(Matrix<T> of_seen) const {
    return columns(of_seen, seen, rotated);
  }
  template <class T>
  [[nodiscard]] Matrix<T> latent_part(Matrix<T> of_seen) const {
    return columns(of_seen, seen + rotated, latent.rank);
  }

  const model::LatentSpec& latent;
  int rotated;
  int projected;
  int seen;
};

// The input of the query projection.
Matrix<const float> query_input(const LayerPass& pass, const LayerWeights& w,
                                const LayerActivations& a, ops::Workspace& workspace) {
  const model::LatentSpec& latent = *pass.attention().latent;
  if (latent.query_rank == 0) {
    return a.normed;
  }
  const auto normed = take_matrix(workspace, a.normed.rows, a.raw_query_latent.cols);
  ops::rms_norm(normed, a.raw_query_latent, w.latent.query_norm, latent.norm_eps);
  return normed;
}

void queries_backward(ops::Context& context, const LayerPass& pass, const LayerWeights& w,
                      const LayerActivations& a, const LayerGradients& g,
                      Matrix<const float> dprojected, Matrix<float> dx) {
  ops::Workspace& workspace = *context.workspace;
  const model::LatentSpec& latent = *pass.attention().latent;
  const auto input = query_input(pass, w, a, workspace);
  if (latent.query_rank == 0) {
    return ops::linear_backward(context, {dx, g.query, {}}, dprojected, input, w.query);
  }
  const auto dinput = take_zeros(workspace, input.rows, input.cols);
  ops::linear_backward(context, {dinput, g.query, {}}, dprojected, input, w.query);
  const auto draw = take_zeros(workspace, input.rows, input.cols);
  ops::rms_norm_backward(workspace, draw, g.latent.query_norm, dinput, a.raw_query_latent,
                         w.latent.query_norm, latent.norm_eps);
  ops::linear_backward(context, {dx, g.latent.query_down, g.latent.query_bias}, draw, a.normed,
                       w.latent.query_down);
}

void keys_backward(ops::Context& context, const LayerPass& pass, const LayerWeights& w,
                   const LayerActivations& a, const LayerGradients& g, Matrix<const float> dkeys,
                   Matrix<float> dx) {
  const model::AttentionSpec& attention = pass.attention();
  const model::LatentSpec& latent = *attention.latent;
  const int rotated = attention.rotated_dim();
  const auto draw = take_zeros(*context.workspace, dkeys.rows, dkeys.cols);
  copy_columns(columns(dkeys, 0, rotated), columns(draw, latent.rank, rotated));
  ops::rms_norm_backward(*context.workspace, columns(draw, 0, latent.rank), g.latent.norm,
                         columns(dkeys, rotated, latent.rank), columns(a.raw_keys, 0, latent.rank),
                         w.latent.norm, latent.norm_eps);
  ops::linear_backward(context, {dx, g.key, g.key_bias}, draw, a.normed, w.key);
}

}  // namespace

void project_to_latent(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                       LayerActivations& a) {
  const ops::Workspace::Scope scope(*context.workspace);
  const model::AttentionSpec& attention = pass.attention();
  const model::LatentSpec& latent = *attention.latent;
  if (latent.query_rank > 0) {
    ops::linear(context, a.raw_query_latent, a.normed, weights.latent.query_down,
                bias_or_null(weights.latent.query_bias));
  }
  ops::linear(context, a.raw_queries, query_input(pass, weights, a, *context.workspace),
              weights.query);
  for (int h = 0; h < attention.heads; ++h) {
    const HeadColumns head(attention, h);
    copy_columns(head.rotated_part(a.raw_queries), head.seen_rotated_part(a.queries));
    ops::linear(context, head.latent_part(a.queries), head.plain_part(a.raw_queries),
                ops::rows_of(weights.latent.key_up, h * latent.rank, latent.rank));
  }
  ops::linear(context, a.raw_keys, a.normed, weights.key, bias_or_null(weights.key_bias));
  const int rotated = attention.rotated_dim();
  copy_columns(columns(a.raw_keys, latent.rank, rotated), columns(a.keys, 0, rotated));
  ops::rms_norm(columns(a.keys, rotated, latent.rank), columns(a.raw_keys, 0, latent.rank),
                weights.latent.norm, latent.norm_eps);
}

void project_to_latent_backward(ops::Context& context, const LayerPass& pass,
                                const LayerWeights& weights, const LayerActivations& a,
                                const LayerGradients& gradients, Matrix<const float> dqueries,
                                Matrix<const float> dkeys, Matrix<float> dx) {
  const ops::Workspace::Scope scope(*context.workspace);
  const model::AttentionSpec& attention = pass.attention();
  const model::LatentSpec& latent = *attention.latent;
  const auto dprojected = take_zeros(*context.workspace, dqueries.rows, a.raw_queries.cols);
  for (int h = 0; h < attention.heads; ++h) {
    const HeadColumns head(attention, h);
    copy_columns(head.seen_rotated_part(dqueries), head.rotated_part(dprojected));
    ops::linear_backward(context,
                         {head.plain_part(dprojected),
                          rows_of(gradients.latent.key_up, h * latent.rank, latent.rank),
                          {}},
                         head.latent_part(dqueries),
                         head.plain_part(Matrix<const float>(a.raw_queries)),
                         ops::rows_of(weights.latent.key_up, h * latent.rank, latent.rank));
  }
  queries_backward(context, pass, weights, a, gradients, dprojected, dx);
  keys_backward(context, pass, weights, a, gradients, dkeys, dx);
}

void expand_latents(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                    const LayerActivations& a, Matrix<float> values) {
  const model::AttentionSpec& attention = pass.attention();
  const int width = attention.latent->value_dim;
  for (int h = 0; h < attention.heads; ++h) {
    ops::linear(context, columns(values, h * width, width),
                HeadColumns(attention, h).latent_part(a.attended),
                ops::rows_of(weights.latent.value_up, h * width, width));
  }
}

void expand_latents_backward(ops::Context& context, const LayerPass& pass,
                             const LayerWeights& weights, const LayerActivations& a,
                             const LayerGradients& gradients, Matrix<const float> dvalues,
                             Matrix<float> dattended) {
  const model::AttentionSpec& attention = pass.attention();
  const int width = attention.latent->value_dim;
  for (int h = 0; h < attention.heads; ++h) {
    const HeadColumns head(attention, h);
    ops::linear_backward(
        context,
        {head.latent_part(dattended), rows_of(gradients.latent.value_up, h * width, width), {}},
        columns(dvalues, h * width, width), head.latent_part(Matrix<const float>(a.attended)),
        ops::rows_of(weights.latent.value_up, h * width, width));
  }
}

}  // namespace winnow::train::detail
