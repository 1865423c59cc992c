#include <algorithm>
#include <numeric>

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
#include "train/recurrent_mixer.h"

namespace winnow::train {
namespace {

using detail::decides;
using ops::Matrix;

// One layer's backward pass, from the output towards the input.
class LayerBackward {
 public:
  LayerBackward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                Matrix<const float> input, const LayerActivations& activations,
                const LayerGradients& gradients)
      : context_(context),
        workspace_(*context.workspace),
        pass_(pass),
        spec_(*pass.spec),
        w_(weights),
        input_(input),
        a_(activations),
        g_(gradients) {}

  // Converts the gradient of the layer's output to that of its input.
  void run(Matrix<float> gradient, const DecisionLoss& loss) {
    const ops::Workspace::Scope scope(workspace_);
    detail::scale_output(pass_, w_, gradient);
    if (spec_.layer_embeddings) {
      detail::layer_embedding_backward(context_, pass_, w_, a_, g_, gradient);
    }
    const auto dnormed = zeros_like(a_.mlp_normed);
    mlp(gradient, dnormed);
    // The input of a parallel layer's feed-forward is the layer's input.
    const bool parallel = pass_.layer_spec().parallel;
    if (!parallel) {
      through_mlp_input(gradient, dnormed, a_.middle);
    }
    mixer(gradient, loss);
    if (parallel) {
      through_mlp_input(gradient, dnormed, input_);
    }
  }

 private:
  // Experts beside a dense network read the stream itself; their gradient is added to `gradient`.
  void mlp(Matrix<float> gradient, Matrix<float> dnormed) {
    const ops::Workspace::Scope scope(workspace_);
    const auto dbranch =
        branch_gradient(gradient, a_.mlp_branch, w_.mlp_post_norm, g_.mlp_post_norm);
    const auto& experts = pass_.layer_spec().feed_forward.experts;
    if (!experts || !experts->beside) {
      return detail::feed_forward_backward(context_, pass_, w_, a_, g_, dbranch, dnormed);
    }
    const auto dstream = zeros_like(gradient);
    detail::experts_beside_backward(context_, pass_, w_, a_, g_, dbranch, {dnormed, dstream});
    ops::add(gradient, dstream);
  }

  void through_mlp_input(Matrix<float> gradient, Matrix<const float> dnormed,
                         Matrix<const float> stream) {
    through_input(gradient, dnormed, stream, detail::mlp_norm(pass_, w_),
                  detail::mlp_norm(pass_, g_));
  }

  // Converts the gradient of a_.middle to that of the layer's input.
  void mixer(Matrix<float> gradient, const DecisionLoss& loss) {
    const ops::Workspace::Scope scope(workspace_);
    const auto output = detail::mixer_output(context_, pass_, w_, a_);
    const auto doutput = zeros_like(output);
    backward(w_.output, {doutput, g_.output, g_.output_bias},
             branch_gradient(gradient, a_.attention_branch, w_.attention_post_norm,
                             g_.attention_post_norm),
             output);
    if (const model::AttentionSpec* spec = pass_.layer_spec().attention()) {
      return attention(gradient, loss, spec->latent ? through_values(doutput) : doutput);
    }
    const auto dnormed = zeros_like(a_.normed);
    detail::recurrent_mixer_backward(context_, pass_, w_, a_, g_, doutput, dnormed);
    through_attention_input(gradient, dnormed);
  }

  [[nodiscard]] Matrix<float> through_values(Matrix<const float> dvalues) const {
    const auto dattended = zeros_like(a_.attended);
    detail::expand_latents_backward(context_, pass_, w_, a_, g_, dvalues, dattended);
    return dattended;
  }

  void through_attention_input(Matrix<float> gradient, Matrix<const float> dnormed) {
    through_input(gradient, dnormed, input_, {w_.attention_norm, w_.attention_norm_bias},
                  {g_.attention_norm, g_.attention_norm_bias});
  }

  void attention(Matrix<float> gradient, const DecisionLoss& loss, Matrix<float> dattended) {
    const bool gated = pass_.attention().output_gate;
    const auto dgates = gated ? like(a_.output_gates) : Matrix<float>();
    if (gated) {
      ops::sigmoid_multiply_backward(dattended, dgates, dattended, a_.attended, a_.output_gates);
    }
    auto dqueries = zeros_like(a_.queries);
    auto [dkeys, dvalues, dbias] = entry_gradients();
    const auto far_bias = detail::far_bias_of(pass_, workspace_);
    ops::training_attention_backward(
        workspace_, detail::attention_of(pass_, a_, far_bias, w_.sinks), a_.attended,
        a_.normalizers, dattended, {dqueries, dkeys, dvalues, dbias, g_.sinks});
    if (detail::shares(pass_)) {  // the layer that stores the entries takes their gradients
      dkeys = dvalues = {};
    }
    Merging merging;
    if (detail::merges(pass_)) {
      merging = through_merging(dkeys, dvalues);
    }
    if (detail::borrows(pass_) && model::clears_after_rope(spec_)) {
      model::scale_channels(spec_, dqueries, dkeys, detail::channel_factor(pass_));
    }
    if (pass_.attention().latent) {  // one vector is both key and value
      ops::add(dkeys, dvalues);
    }
    if (const auto& growth = pass_.attention().query_growth) {
      model::grow_queries(*growth, pass_.positions, dqueries);
    }
    if (detail::norms_heads(pass_.attention()) && pass_.attention().norms_after_rope) {
      through_head_norms(dqueries, dkeys);
    }
    through_rope(dqueries, dkeys);
    if (decides(pass_)) {
      decisions(loss, dbias, merging, dqueries, dkeys, gradient);
    }
    projections({dqueries, dkeys, dvalues, dgates}, gradient);
  }

  // Gradients to add to: where layers share entries, the gradients of all of them are summed there.
  [[nodiscard]] Entries entry_gradients() const {
    const bool decided = detail::sees_decisions(pass_);
    if (pass_.shared_gradients != nullptr) {
      const Entries& all = *pass_.shared_gradients;
      return {all.keys, all.values, decided ? all.bias : Matrix<float>()};
    }
    const Matrix<float>& values = pass_.attention().latent ? a_.keys : a_.values;
    return {zeros_like(a_.keys), zeros_like(values),
            decided ? zeros_like(a_.key_bias) : Matrix<float>()};
  }

  void through_rope(Matrix<float> dqueries, Matrix<float> dkeys) {
    if (pass_.angles == nullptr) {
      return;
    }
    ops::rope_backward(dqueries, pass_.attention().head_dim, *pass_.angles);
    if (!detail::shares(pass_)) {
      ops::rope_backward(dkeys, pass_.attention().head_dim, *pass_.angles);
    }
  }

  void backward(const ops::Weight& weight, const ops::LinearGradients& gradients,
                Matrix<const float> dout, Matrix<const float> x) {
    ops::linear_backward(context_, gradients, dout, x, weight);
  }
  [[nodiscard]] Matrix<float> like(Matrix<const float> x) const {
    return detail::take_matrix(workspace_, x.rows, x.cols);
  }
  [[nodiscard]] Matrix<float> zeros_like(Matrix<const float> x) const {
    return detail::take_zeros(workspace_, x.rows, x.cols);
  }

  // Gradients that DMC's running averages pass to decisions and weights.
  struct Merging {
    Matrix<float> dalphas;
    Matrix<float> domegas;
  };

  // Converts the gradients of merged keys and values to those before merging.
  Merging through_merging(Matrix<float>& dkeys, Matrix<float>& dvalues) {
    const Merging merging{zeros_like(a_.alphas), zeros_like(a_.omegas)};
    const auto dsingle_keys = zeros_like(a_.keys);
    const auto dsingle_values = zeros_like(a_.values);
    ops::segment_average_backward(workspace_, detail::average_of(pass_, a_), a_.merged_keys,
                                  a_.merged_values, dkeys, dvalues,
                                  {merging.dalphas, merging.domegas, dsingle_keys, dsingle_values});
    dkeys = dsingle_keys;
    dvalues = dsingle_values;
    return merging;
  }

  // From the bias of keys to the source of the decisions: borrowed channels' gradients in those of
  // queries and keys, or through an adapter to the layer's input. Attention saw 0 in the channels,
  // so they have no other gradient.
  void decisions(const DecisionLoss& loss, Matrix<const float> dkey_bias, const Merging& merging,
                 Matrix<float> dqueries, Matrix<float> dkeys, Matrix<float> gradient) {
    const ops::Workspace::Scope scope(workspace_);
    const auto dbias = like(a_.logits);
    align_to_keys_backward(decision_shift(spec_), pass_.first_key, dbias, dkey_bias);
    const auto dlogits = zeros_like(a_.logits);
    take_decisions_backward(pass_.decisions, loss, dlogits, dbias, a_.noisy, a_.logits);
    if (detail::merges(pass_)) {
      to_alphas_backward(pass_.decisions, dlogits, merging.dalphas, a_.alphas);
    }
    for (std::size_t t = 0; t < dlogits.rows; ++t) {
      for (float& x : dlogits.row(t)) {
        x *= logit_scale(spec_);
      }
    }
    if (spec_.dmc) {
      model::scatter_channels(spec_, model::key_column, dkeys, dlogits);
      omegas(merging.domegas, dqueries);
    } else if (model::borrows_channels(spec_)) {
      model::scatter_channels(spec_, model::query_column, dqueries, dlogits);
    } else {
      adapter(dlogits, gradient);
    }
  }

  void omegas(Matrix<float> domegas, Matrix<float> dqueries) {
    for (std::size_t t = 0; t < domegas.rows; ++t) {
      for (std::size_t h = 0; h < domegas.cols; ++h) {
        const float omega = a_.omegas.row(t)[h];
        domegas.row(t)[h] *= omega * (1.0F - omega);
      }
      if (decides_per_layer(spec_)) {  // all heads share head 0's decision
        const auto row = domegas.row(t);
        row[0] = std::accumulate(row.begin(), row.end(), 0.0F);
        std::ranges::fill(row.subspan(1), 0.0F);
      }
    }
    model::scatter_channels(spec_, model::query_column, dqueries, domegas);
  }

  // The rows of a decision tensor's gradient that are used.
  [[nodiscard]] ops::LinearGradients decision_gradients(Matrix<float> dx) const {
    const std::size_t count = decision_count(spec_);
    return {dx, g_.decision.data == nullptr ? g_.decision : g_.decision.slice(0, count),
            g_.decision_bias.empty() ? g_.decision_bias : g_.decision_bias.first(count)};
  }

  void adapter(Matrix<const float> dlogits, Matrix<float> gradient) {
    const auto dnormed = zeros_like(a_.decision_normed);
    backward(detail::decision_weight(spec_, w_), decision_gradients(dnormed), dlogits,
             a_.decision_normed);
    ops::rms_norm_backward(workspace_, gradient, g_.decision_norm, dnormed, input_,
                           w_.decision_norm, spec_.final_norm.eps);
  }

  struct HeadGradients {
    Matrix<float> queries;
    Matrix<float> keys;
    Matrix<float> values;
    Matrix<float> gates;  // of outputs, if there are any
  };

  void projections(const HeadGradients& of, Matrix<float> gradient) {
    Matrix<float> dqueries = of.queries;
    Matrix<float> dkeys = of.keys;
    if (detail::norms_heads(pass_.attention()) && !pass_.attention().norms_after_rope) {
      through_head_norms(dqueries, dkeys);
    }
    const auto dnormed = zeros_like(a_.normed);
    if (pass_.attention().latent) {
      detail::project_to_latent_backward(context_, pass_, w_, a_, g_, dqueries, dkeys, dnormed);
      return through_attention_input(gradient, dnormed);
    }
    if (detail::borrows(pass_)) {
      channels(dqueries, dkeys, dnormed);
    }
    if (of.gates.data != nullptr) {
      const auto both = detail::take_matrix(workspace_, dqueries.rows, 2 * dqueries.cols);
      model::join_output_gates(pass_.attention().head_dim, both, dqueries, of.gates);
      dqueries = both;
    }
    backward(w_.query, {dnormed, g_.query, g_.query_bias}, dqueries, a_.normed);
    if (!detail::shares(pass_)) {
      key_projections(dkeys, of.values, dnormed);
    }
    through_attention_input(gradient, dnormed);
  }

  void key_projections(Matrix<float> dkeys, Matrix<float> dvalues, Matrix<float> dnormed) {
    if (pass_.attention().value_norm) {
      dvalues = through_value_norm(dvalues);
    }
    if (!pass_.attention().projects_values()) {
      ops::add(dkeys, dvalues);
    }
    backward(w_.key, {dnormed, g_.key, g_.key_bias}, dkeys, a_.normed);
    if (pass_.attention().projects_values()) {
      backward(w_.value, {dnormed, g_.value, g_.value_bias}, dvalues, a_.normed);
    }
  }

  // From a part's input to the residual stream that it was computed from.
  void through_input(Matrix<float> gradient, Matrix<const float> dinput, Matrix<const float> stream,
                     const detail::NormWeights& weights, const detail::NormGradients& gradients) {
    const model::LayerSpec& spec = pass_.layer_spec();
    if (spec.norm_before) {
      detail::normalize_backward(workspace_, spec.norm, gradient, gradients, dinput, stream,
                                 weights);
    } else {
      ops::add(gradient, dinput);
    }
  }

  // The gradient of a part's output before its norm and multiplier, given that of the stream.
  Matrix<const float> branch_gradient(Matrix<const float> gradient, Matrix<const float> branch,
                                      std::span<const float> weight, std::span<float> dweight) {
    const model::LayerSpec& spec = pass_.layer_spec();
    if (!spec.norm_after && spec.residual_multiplier == 1.0F) {
      return gradient;
    }
    auto result = like(gradient);
    std::copy_n(gradient.data, gradient.rows * gradient.cols, result.data);
    ops::scale(result, spec.residual_multiplier);
    if (spec.norm_after) {
      const auto dbranch = zeros_like(branch);
      detail::normalize_backward(workspace_, spec.norm, dbranch, {dweight}, result, branch,
                                 {weight});
      result = dbranch;
    }
    return result;
  }

  [[nodiscard]] Matrix<float> through_head_norm(Matrix<float> dout, Matrix<float> raw,
                                                std::span<const float> weight,
                                                std::span<float> dweight) {
    const std::size_t width = detail::normed_width(pass_, dout);
    const auto draw = zeros_like(dout);
    detail::normalize_backward(workspace_, detail::head_norm(pass_), detail::by_head(draw, width),
                               {dweight}, detail::by_head(dout, width), detail::by_head(raw, width),
                               {detail::weight_or_ones(workspace_, weight, width)});
    return draw;
  }

  void through_head_norms(Matrix<float>& dqueries, Matrix<float>& dkeys) {
    dqueries = through_head_norm(dqueries, a_.raw_queries, w_.query_norm, g_.query_norm);
    if (!detail::shares(pass_)) {
      dkeys = through_head_norm(dkeys, a_.raw_keys, w_.key_norm, g_.key_norm);
    }
  }

  [[nodiscard]] Matrix<float> through_value_norm(Matrix<float> dout) {
    const auto width = static_cast<std::size_t>(pass_.attention().head_dim);
    const auto draw = zeros_like(dout);
    ops::rms_norm_backward(workspace_, detail::by_head(draw, width), {},
                           detail::by_head(dout, width), detail::by_head(a_.raw_values, width),
                           detail::weight_or_ones(workspace_, {}, width),
                           pass_.layer_spec().norm.eps);
    return draw;
  }

  // Borrowed channels were either the model's own, faded, or computed by separate rows.
  void channels(Matrix<float> dqueries, Matrix<float> dkeys, Matrix<float> dnormed) {
    if (decides(pass_)) {
      const ops::Workspace::Scope scope(workspace_);
      const auto drows = like(a_.logits);
      model::gather_channels(spec_, spec_.dmc ? model::key_column : model::query_column,
                             spec_.dmc ? dkeys : dqueries, drows);
      backward(detail::decision_weight(spec_, w_), decision_gradients(dnormed), drows, a_.normed);
      if (spec_.dmc) {
        const auto domega_rows = like(a_.omegas);
        model::gather_channels(spec_, model::query_column, dqueries, domega_rows);
        backward(w_.omega, {dnormed, g_.omega, g_.omega_bias}, domega_rows, a_.normed);
      }
    }
    model::scale_channels(spec_, dqueries, dkeys, detail::channel_factor(pass_));
  }

  ops::Context& context_;
  ops::Workspace& workspace_;
  const LayerPass& pass_;
  const model::ModelSpec& spec_;
  const LayerWeights& w_;
  Matrix<const float> input_;
  const LayerActivations& a_;
  const LayerGradients& g_;
};

}  // namespace

void layer_backward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                    Matrix<const float> input, const LayerActivations& activations,
                    const DecisionLoss& loss, const LayerGradients& gradients,
                    Matrix<float> gradient) {
  LayerBackward(context, pass, weights, input, activations, gradients).run(gradient, loss);
}

}  // namespace winnow::train
