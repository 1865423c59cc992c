// The gated delta net of Qwen3-Next.
#include <algorithm>
#include <array>
#include <vector>

#include "model/mixer_parts.h"
#include "ops/activation.h"
#include "ops/delta_rule.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "train/document_scan.h"
#include "train/layer_parts.h"
#include "train/recurrent_mixer.h"

namespace winnow::train::detail {
namespace {

using model::columns;
using ops::Matrix;

Matrix<float> take_copy(ops::Workspace& workspace, Matrix<const float> x) {
  const auto result = take_matrix(workspace, x.rows, x.cols);
  std::copy_n(x.data, x.rows * x.cols, result.data);
  return result;
}

// Inputs of the delta rule, computed from a layer's activations.
class RuleInput {
 public:
  RuleInput(const LayerPass& pass, const LayerWeights& w, const LayerActivations& a,
            ops::Workspace& workspace)
      : what_(mixer_of(pass)),
        documents_(documents_of(pass.first_key)),
        convolved_(take_matrix(workspace, a.recurrent_input.rows, a.recurrent_input.cols)),
        decays_(take_copy(workspace, a.decays)),
        rates_(take_copy(workspace, a.rates)) {
    ops::delta_gates(decays_, rates_, w.recurrent.log_decay, w.recurrent.decay_bias);
    convolve(documents_, convolved_, a.recurrent_input, w.recurrent.taps, w.recurrent.conv_bias);
    activated_ = take_copy(workspace, convolved_);
    ops::activate(ops::Activation::silu, activated_);
    queries_ = normed(workspace, 0, model::query_length(what_.heads));
    keys_ = normed(workspace, what_.heads.key_width(), model::key_length(what_.heads));
  }

  // The rows of all documents, with results in `out`.
  [[nodiscard]] ops::DeltaRuleChunk rows(Matrix<float> out = {}) const {
    return {.queries = queries_,
            .keys = keys_,
            .values = values(),
            .decays = decays_,
            .rates = rates_,
            .state = {},
            .out = out};
  }

  [[nodiscard]] const std::vector<Document>& documents() const { return documents_; }
  [[nodiscard]] Matrix<const float> convolved() const { return convolved_; }
  [[nodiscard]] Matrix<const float> activated() const { return activated_; }
  [[nodiscard]] Matrix<const float> decays() const { return decays_; }
  [[nodiscard]] Matrix<const float> rates() const { return rates_; }

 private:
  [[nodiscard]] Matrix<float> values() const {
    return columns(activated_, 2 * what_.heads.key_width(), what_.heads.value_width());
  }

  // The heads in the activated columns from `first` on, each normalised.
  [[nodiscard]] Matrix<float> normed(ops::Workspace& workspace, int first,
                                     const model::LengthNorm& norm) const {
    const int width = what_.heads.key_width();
    const auto result = take_matrix(workspace, activated_.rows, static_cast<std::size_t>(width));
    for (int at = 0; at < width; at += what_.heads.key_dim) {
      ops::rms_norm(columns(result, at, what_.heads.key_dim),
                    columns(activated_, first + at, what_.heads.key_dim), norm.weight, norm.eps);
    }
    return result;
  }

  const model::RecurrentSpec& what_;
  std::vector<Document> documents_;
  Matrix<float> convolved_;
  Matrix<float> activated_;
  Matrix<float> queries_;
  Matrix<float> keys_;
  Matrix<float> decays_;
  Matrix<float> rates_;
};

// Rows of a matrix, reshaped to one row per head.
Matrix<float> value_heads(const LayerPass& pass, Matrix<float> x) {
  return by_head(x, static_cast<std::size_t>(mixer_of(pass).heads.value_dim));
}

void project(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
             LayerActivations& a) {
  const auto& w = weights.recurrent;
  const model::RecurrentProjections to{a.recurrent_input, a.recurrent_gates, a.rates, a.decays};
  if (!pass.spec->names.joins_recurrent) {
    const std::array<ops::LinearTarget, 4> targets{
        {{to.input, &w.input}, {to.gates, &w.gate}, {to.rates, &w.rate}, {to.decays, &w.decay}}};
    return ops::linear(context, targets, a.normed);
  }
  const ops::Workspace::Scope scope(*context.workspace);
  const std::size_t rows = a.normed.rows;
  const auto all = take_matrix(*context.workspace, rows, static_cast<std::size_t>(w.input.rows));
  const auto small = take_matrix(*context.workspace, rows, static_cast<std::size_t>(w.rate.rows));
  const std::array<ops::LinearTarget, 2> targets{{{all, &w.input}, {small, &w.rate}}};
  ops::linear(context, targets, a.normed);
  model::split_recurrent(mixer_of(pass).heads, all, small, to);
}

void project_backward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                      const LayerActivations& a, const LayerGradients& gradients,
                      const model::RecurrentProjections& d, Matrix<float> dx) {
  const auto& w = weights.recurrent;
  const auto& g = gradients.recurrent;
  const auto backward = [&](const ops::Weight& weight, Matrix<float> dweight,
                            Matrix<const float> dout) {
    ops::linear_backward(context, {dx, dweight, {}}, dout, a.normed, weight);
  };
  if (!pass.spec->names.joins_recurrent) {
    backward(w.input, g.input, d.input);
    backward(w.gate, g.gate, d.gates);
    backward(w.rate, g.rate, d.rates);
    backward(w.decay, g.decay, d.decays);
    return;
  }
  const std::size_t rows = dx.rows;
  const auto all = take_matrix(*context.workspace, rows, static_cast<std::size_t>(w.input.rows));
  const auto small = take_matrix(*context.workspace, rows, static_cast<std::size_t>(w.rate.rows));
  model::join_recurrent(mixer_of(pass).heads, all, small, d);
  backward(w.input, g.input, all);
  backward(w.rate, g.rate, small);
}

// From the rule's queries, keys and values to the convolution's output.
void through_heads(const LayerPass& pass, const RuleInput& input, ops::Workspace& workspace,
                   Matrix<const float> dqueries, Matrix<const float> dkeys,
                   Matrix<float> dactivated) {
  const ops::DeltaRuleShape& heads = mixer_of(pass).heads;
  const auto through = [&](const model::LengthNorm& norm, int first, Matrix<const float> dout) {
    for (int at = 0; at < heads.key_width(); at += heads.key_dim) {
      ops::rms_norm_backward(workspace, columns(dactivated, first + at, heads.key_dim), {},
                             columns(dout, at, heads.key_dim),
                             columns(input.activated(), first + at, heads.key_dim), norm.weight,
                             norm.eps);
    }
  };
  through(model::query_length(heads), 0, dqueries);
  through(model::key_length(heads), heads.key_width(), dkeys);
  ops::activate_backward(ops::Activation::silu, dactivated, dactivated, input.convolved());
}

}  // namespace

void delta_net(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
               LayerActivations& a) {
  const ops::Workspace::Scope scope(*context.workspace);
  project(context, pass, weights, a);
  const RuleInput input(pass, weights, a, *context.workspace);
  scan(mixer_of(pass).heads, input.documents(), input.rows(a.recalled));
}

void delta_net_backward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                        const LayerActivations& a, const LayerGradients& gradients,
                        Matrix<const float> dout, Matrix<float> dx) {
  ops::Workspace& workspace = *context.workspace;
  const ops::Workspace::Scope scope(workspace);
  const ops::DeltaRuleShape& heads = mixer_of(pass).heads;
  const std::size_t rows = dout.rows;
  const auto take = [&](Matrix<const float> x) { return take_zeros(workspace, rows, x.cols); };
  const model::RecurrentProjections d{.input = take(a.recurrent_input),
                                      .gates = take(a.recurrent_gates),
                                      .rates = take(a.rates),
                                      .decays = take(a.decays)};
  const auto normed = take(a.recalled);
  const float eps = pass.layer_spec().norm.eps;
  ops::rms_norm(value_heads(pass, normed), value_heads(pass, a.recalled), weights.recurrent.norm,
                eps);
  const auto dnormed = take(a.recalled);
  ops::silu_multiply_backward(d.gates, dnormed, dout, a.recurrent_gates, normed);
  const auto drecalled = take(a.recalled);
  ops::rms_norm_backward(workspace, value_heads(pass, drecalled), gradients.recurrent.norm,
                         value_heads(pass, dnormed), value_heads(pass, a.recalled),
                         weights.recurrent.norm, eps);

  const RuleInput input(pass, weights, a, workspace);
  const auto dqueries = take_zeros(workspace, rows, static_cast<std::size_t>(heads.key_width()));
  const auto dkeys = take_zeros(workspace, rows, static_cast<std::size_t>(heads.key_width()));
  const auto dactivated = take(a.recurrent_input);
  const auto dvalues = columns(dactivated, 2 * heads.key_width(), heads.value_width());
  scan_backward(heads, input.documents(), input.rows(), drecalled,
                {.queries = dqueries,
                 .keys = dkeys,
                 .decays = d.decays,
                 .rates = d.rates,
                 .values = dvalues});
  ops::delta_gates_backward(d.decays, d.rates, gradients.recurrent.log_decay,
                            gradients.recurrent.decay_bias, a.decays, input.decays(), input.rates(),
                            weights.recurrent.log_decay, weights.recurrent.decay_bias);
  through_heads(pass, input, workspace, dqueries, dkeys, dactivated);
  convolve_backward(input.documents(), d.input, gradients.recurrent.taps, dactivated,
                    a.recurrent_input, weights.recurrent.taps);
  project_backward(context, pass, weights, a, gradients, d, dx);
}

}  // namespace winnow::train::detail
