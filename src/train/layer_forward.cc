#include <algorithm>
#include <array>
#include <cmath>

#include "model/mixer_parts.h"
#include "ops/activation.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "train/feed_forward.h"
#include "train/latent_attention.h"
#include "train/layer.h"
#include "train/layer_embeddings.h"
#include "train/layer_parts.h"
#include "train/mixer_output.h"
#include "train/norms.h"
#include "train/recurrent_mixer.h"

namespace winnow::train {
namespace {

using detail::copy;
using detail::decides;
using ops::Matrix;

const float* data_or_null(std::span<const float> bias) {
  return bias.empty() ? nullptr : bias.data();
}

// Borrowed channels, before q- and k-norm: the model's original values, faded, or decisions.
void compose_channels(ops::Context& context, const LayerPass& pass, const LayerWeights& w,
                      LayerActivations& a) {
  const model::ModelSpec& spec = *pass.spec;
  if (!decides(pass)) {
    return model::scale_channels(spec, a.queries, a.keys, pass.decisions.fade);
  }
  ops::linear(context, a.logits, a.normed, detail::decision_weight(spec, w),
              data_or_null(w.decision_bias));
  if (!spec.dmc) {
    return model::scatter_channels(spec, model::query_column, a.queries, a.logits);
  }
  model::scatter_channels(spec, model::key_column, a.keys, a.logits);
  ops::linear(context, a.omegas, a.normed, w.omega, data_or_null(w.omega_bias));
  model::scatter_channels(spec, model::query_column, a.queries, a.omegas);
}

void read_logits(ops::Context& context, const LayerPass& pass, const LayerWeights& w,
                 Matrix<const float> input, LayerActivations& a) {
  const model::ModelSpec& spec = *pass.spec;
  if (spec.dmc) {
    model::gather_channels(spec, model::key_column, a.keys, a.logits);
  } else if (model::borrows_channels(spec)) {
    model::gather_channels(spec, model::query_column, a.queries, a.logits);
  } else {
    ops::rms_norm(a.decision_normed, input, w.decision_norm, spec.final_norm.eps);
    ops::linear(context, a.logits, a.decision_normed, detail::decision_weight(spec, w),
                data_or_null(w.decision_bias));
  }
  to_logits(spec, a.logits);
}

void read_omegas(const LayerPass& pass, LayerActivations& a) {
  model::gather_channels(*pass.spec, model::query_column, a.queries, a.omegas);
  for (std::size_t t = 0; t < a.omegas.rows; ++t) {
    if (decides_per_layer(*pass.spec)) {
      std::ranges::fill(a.omegas.row(t), a.omegas.row(t)[0]);
    }
    for (float& omega : a.omegas.row(t)) {
      omega = 1.0F / (1.0F + std::exp(-omega));
    }
  }
}

void decide(ops::Context& context, const LayerPass& pass, const LayerWeights& w,
            Matrix<const float> input, LayerActivations& a) {
  const ops::Workspace::Scope scope(*context.workspace);
  read_logits(context, pass, w, input, a);
  const auto bias = detail::take_matrix(*context.workspace, a.logits.rows, a.logits.cols);
  if (pass.spec->dmc && pass.spec->dmc->pooled > 0) {
    take_pooled(pass.spec->dmc->pooled, pass.first_key, a.noisy, bias);
  } else {
    take_decisions(pass.decisions, pass.layer, a.noisy, bias, a.logits);
  }
  align_to_keys(decision_shift(*pass.spec), pass.first_key, a.key_bias, bias);
  if (detail::merges(pass)) {
    to_alphas(pass.decisions, a.alphas, a.noisy);
    read_omegas(pass, a);
  }
}

void attend(ops::Context& context, const LayerPass& pass, const LayerWeights& w,
            LayerActivations& a) {
  ops::Workspace& workspace = *context.workspace;
  const ops::Workspace::Scope scope(workspace);
  const auto far_bias = detail::far_bias_of(pass, workspace);
  ops::training_attention(workspace, detail::attention_of(pass, a, far_bias, w.sinks), a.attended,
                          a.normalizers);
}

// The input that a part of the layer computes from the residual stream.
void take_input(const LayerPass& pass, Matrix<const float> stream,
                const detail::NormWeights& weights, Matrix<float> input) {
  const model::LayerSpec& spec = pass.layer_spec();
  if (spec.norm_before) {
    detail::normalize(spec.norm, input, stream, weights);
  } else {
    copy(stream, input);
  }
}

// out = stream + multiplier * [norm](branch); branch is `out` if it has no norm.
void add_branch(const LayerPass& pass, std::span<const float> post_norm, Matrix<const float> branch,
                Matrix<const float> stream, Matrix<float> out) {
  const model::LayerSpec& spec = pass.layer_spec();
  if (spec.norm_after) {
    detail::normalize(spec.norm, out, branch, {post_norm});
  }
  if (spec.residual_multiplier != 1.0F) {
    ops::scale(out, spec.residual_multiplier);
  }
  ops::add(out, stream);
}

void norm_heads(ops::Workspace& workspace, const LayerPass& pass, std::span<const float> weight,
                Matrix<float> x, Matrix<float> raw) {
  const ops::Workspace::Scope scope(workspace);
  const std::size_t width = detail::normed_width(pass, x);
  copy(x, raw);
  detail::normalize(detail::head_norm(pass), detail::by_head(x, width), detail::by_head(raw, width),
                    {detail::weight_or_ones(workspace, weight, width)});
}

// RMSNorm of each value head, without weights.
void norm_values(ops::Workspace& workspace, const LayerPass& pass, LayerActivations& a) {
  const ops::Workspace::Scope scope(workspace);
  const auto width = static_cast<std::size_t>(pass.attention().head_dim);
  copy(a.values, a.raw_values);
  ops::rms_norm(detail::by_head(a.values, width), detail::by_head(a.raw_values, width),
                detail::weight_or_ones(workspace, {}, width), pass.layer_spec().norm.eps);
}

void norm_queries_and_keys(ops::Workspace& workspace, const LayerPass& pass, const LayerWeights& w,
                           LayerActivations& a) {
  norm_heads(workspace, pass, w.query_norm, a.queries, a.raw_queries);
  if (!detail::shares(pass)) {
    norm_heads(workspace, pass, w.key_norm, a.keys, a.raw_keys);
  }
}

// Computes those of q, k and v that the layer has, and the gates of outputs.
void project_heads(ops::Context& context, const LayerPass& pass, const LayerWeights& w,
                   LayerActivations& a) {
  const ops::Workspace::Scope scope(*context.workspace);
  const model::AttentionSpec& attention = pass.attention();
  const auto queries = attention.output_gate
                           ? detail::take_matrix(*context.workspace, a.queries.rows,
                                                 static_cast<std::size_t>(w.query.rows))
                           : a.queries;
  const std::array<ops::LinearTarget, 3> projections{{
      {queries, &w.query, data_or_null(w.query_bias)},
      {a.keys, &w.key, data_or_null(w.key_bias)},
      {a.values, &w.value, data_or_null(w.value_bias)},
  }};
  const std::size_t count = attention.projects_values() ? 3 : attention.projects_keys() ? 2 : 1;
  ops::linear(context, std::span(projections).first(count), a.normed);
  if (attention.output_gate) {
    model::split_output_gates(attention.head_dim, queries, a.queries, a.output_gates);
  }
  if (detail::shares(pass)) {
    return;
  }
  if (attention.values_are_keys) {
    copy(a.keys, a.values);
  }
  if (attention.value_norm) {
    norm_values(*context.workspace, pass, a);
  }
}

void rotate(const LayerPass& pass, LayerActivations& a) {
  if (pass.angles == nullptr) {
    return;
  }
  ops::rope(a.queries, pass.attention().head_dim, *pass.angles);
  if (!detail::shares(pass)) {
    ops::rope(a.keys, pass.attention().head_dim, *pass.angles);
  }
}

// Copies the entries for the layers that share them.
void show_entries(const LayerPass& pass, const LayerActivations& a) {
  const Entries entries = detail::entries_of(pass, a);
  copy(entries.keys, pass.shared->keys);
  copy(entries.values, pass.shared->values);
  if (decides(pass)) {
    copy(entries.bias, pass.shared->bias);
  }
}

// From the layer's input to the inputs of attention.
void project(ops::Context& context, const LayerPass& pass, const LayerWeights& w,
             Matrix<const float> input, LayerActivations& a) {
  const model::ModelSpec& spec = *pass.spec;
  if (pass.attention().latent) {
    detail::project_to_latent(context, pass, w, a);
  } else {
    project_heads(context, pass, w, a);
  }
  if (detail::borrows(pass)) {
    compose_channels(context, pass, w, a);
  }
  const bool norms = detail::norms_heads(pass.attention());
  if (norms && !pass.attention().norms_after_rope) {
    norm_queries_and_keys(*context.workspace, pass, w, a);
  }
  if (decides(pass)) {
    decide(context, pass, w, input, a);
    model::scale_channels(spec, a.queries, a.keys, 0.0F);
  }
  rotate(pass, a);
  if (norms && pass.attention().norms_after_rope) {
    norm_queries_and_keys(*context.workspace, pass, w, a);
  }
  if (const auto& growth = pass.attention().query_growth) {
    model::grow_queries(*growth, pass.positions, a.queries);
  }
  if (detail::borrows(pass) && model::clears_after_rope(spec)) {
    model::scale_channels(spec, a.queries, a.keys, detail::channel_factor(pass));
  }
  if (detail::merges(pass)) {
    ops::segment_average(detail::average_of(pass, a), a.merged_keys, a.merged_values);
  }
  if (pass.shared != nullptr && !detail::shares(pass)) {
    show_entries(pass, a);
  }
}

void mix(ops::Context& context, const LayerPass& pass, const LayerWeights& w,
         Matrix<const float> input, LayerActivations& a) {
  const ops::Workspace::Scope scope(*context.workspace);
  take_input(pass, input, {w.attention_norm, w.attention_norm_bias}, a.normed);
  if (pass.layer_spec().attention() != nullptr) {
    project(context, pass, w, input, a);
    attend(context, pass, w, a);
  } else {
    detail::recurrent_mixer(context, pass, w, a);
  }
  const Matrix<float> branch = pass.layer_spec().norm_after ? a.attention_branch : a.middle;
  ops::linear(context, branch, detail::mixer_output(context, pass, w, a), w.output,
              data_or_null(w.output_bias));
  add_branch(pass, w.attention_post_norm, branch, input, a.middle);
}

void mlp(ops::Context& context, const LayerPass& pass, const LayerWeights& w,
         Matrix<const float> input, LayerActivations& a, Matrix<float> output) {
  const Matrix<const float> stream = pass.layer_spec().parallel ? input : a.middle;
  take_input(pass, stream, detail::mlp_norm(pass, w), a.mlp_normed);
  // The layer's own embedding needs this input even when there is no output.
  const Matrix<float> out = pass.spec->layer_embeddings ? a.fed : output;
  const Matrix<float> branch = pass.layer_spec().norm_after ? a.mlp_branch : out;
  detail::feed_forward(context, pass, w, a, branch);
  if (out.data != nullptr) {
    add_branch(pass, w.mlp_post_norm, branch, a.middle, out);
  }
}

}  // namespace

void layer_forward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                   Matrix<const float> input, LayerActivations& activations, Matrix<float> output) {
  mix(context, pass, weights, input, activations);
  mlp(context, pass, weights, input, activations, output);
  if (pass.spec->layer_embeddings) {
    detail::add_layer_embedding(context, pass, weights, activations, output);
  }
  if (output.data != nullptr) {
    detail::scale_output(pass, weights, output);
  }
}

}  // namespace winnow::train
