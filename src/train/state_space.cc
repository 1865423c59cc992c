// The state space of Mamba 2.
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

// Inputs of the rule, computed from a layer's activations.
struct StateSpaceInput {
  StateSpaceInput(const LayerPass& pass, const LayerWeights& weights, const LayerActivations& a,
                  ops::Workspace& workspace)
      : what(mixer_of(pass)),
        documents(documents_of(pass.first_key)),
        convolved(take_matrix(workspace, a.recurrent_input.rows, a.recurrent_input.cols)),
        activated(take_matrix(workspace, convolved.rows, convolved.cols)),
        decays(take_matrix(workspace, a.decays.rows, a.decays.cols)),
        rates(take_matrix(workspace, a.decays.rows, a.decays.cols)) {
    const auto& w = weights.recurrent;
    copy(a.decays, decays);
    ops::state_space_gates(decays, rates, w.log_decay, w.decay_bias, what.rates);
    convolve(documents, convolved, a.recurrent_input, w.taps, w.conv_bias);
    copy(convolved, activated);
    ops::activate(ops::Activation::silu, activated);
  }

  // Queries, keys and values among the channels of the convolution.
  [[nodiscard]] Matrix<float> queries(Matrix<float> x) const {
    return columns(x, what.first_query(), what.heads.key_width());
  }
  [[nodiscard]] Matrix<float> keys(Matrix<float> x) const {
    return columns(x, what.first_key(), what.heads.key_width());
  }
  [[nodiscard]] Matrix<float> values(Matrix<float> x) const {
    return columns(x, what.first_value(), what.heads.value_width());
  }

  // The rows of all documents, with results in `out`.
  [[nodiscard]] ops::DeltaRuleChunk rows(Matrix<float> out = {}) const {
    return {.queries = queries(activated),
            .keys = keys(activated),
            .values = values(activated),
            .decays = decays,
            .rates = rates,
            .state = {},
            .out = out};
  }

  const model::RecurrentSpec& what;
  std::vector<Document> documents;
  Matrix<float> convolved;
  Matrix<float> activated;
  Matrix<float> decays;
  Matrix<float> rates;
};

// Backward of model::norm_groups() of x: sets dx.
void norm_groups_backward(const LayerPass& pass, ops::Workspace& workspace, Matrix<float> dx,
                          std::span<float> dweight, Matrix<const float> dout, Matrix<float> x,
                          std::span<const float> weight) {
  const auto size = x.cols / static_cast<std::size_t>(mixer_of(pass).norm_groups);
  for (std::size_t at = 0; at < x.cols; at += size) {
    const auto group = [&](auto matrix) {
      return columns(matrix, static_cast<int>(at), static_cast<int>(size));
    };
    ops::rms_norm_backward(workspace, group(dx),
                           dweight.empty() ? dweight : dweight.subspan(at, size), group(dout),
                           group(x), weight.subspan(at, size), pass.layer_spec().norm.eps);
  }
}

// Backward of model::add_skip(): adds to dvalues and dskip (empty: not computed).
void add_skip_backward(const ops::DeltaRuleShape& heads, std::span<const float> skip,
                       Matrix<const float> values, Matrix<const float> dout, Matrix<float> dvalues,
                       std::span<float> dskip) {
  const auto dim = static_cast<std::size_t>(heads.value_dim);
  for (std::size_t t = 0; t < dout.rows; ++t) {
    for (std::size_t i = 0; i < dout.cols; ++i) {
      dvalues.row(t)[i] += skip[i / dim] * dout.row(t)[i];
      if (!dskip.empty()) {
        dskip[i / dim] += values.row(t)[i] * dout.row(t)[i];
      }
    }
  }
}

void add_rows(Matrix<const float> x, std::span<float> sums) {
  for (std::size_t t = 0; t < x.rows && !sums.empty(); ++t) {
    for (std::size_t i = 0; i < x.cols; ++i) {
      sums[i] += x.row(t)[i];
    }
  }
}

// From the gradient of the rule's output, drecalled, to those of the convolution and of the decays.
void through_rule(const StateSpaceInput& input, const LayerWeights& weights,
                  const LayerActivations& a, const LayerGradients& gradients,
                  ops::Workspace& workspace, Matrix<const float> drecalled, Matrix<float> dinput,
                  Matrix<float> ddecays) {
  const auto& w = weights.recurrent;
  const auto& g = gradients.recurrent;
  const auto drates = take_zeros(workspace, ddecays.rows, ddecays.cols);
  const auto dmixed = take_zeros(workspace, dinput.rows, dinput.cols);
  const auto& heads = input.what.heads;
  scan_backward(heads, input.documents, input.rows(), drecalled,
                {.queries = input.queries(dmixed),
                 .keys = input.keys(dmixed),
                 .decays = ddecays,
                 .rates = drates,
                 .values = input.values(dmixed)});
  add_skip_backward(heads, w.skip, input.values(input.activated), drecalled, input.values(dmixed),
                    g.skip);
  ops::state_space_gates_backward(ddecays, drates, g.log_decay, g.decay_bias, a.decays,
                                  input.decays, input.rates, w.log_decay, w.decay_bias,
                                  input.what.rates);
  ops::activate_backward(ops::Activation::silu, dmixed, dmixed, input.convolved);
  add_rows(dmixed, g.conv_bias);
  convolve_backward(input.documents, dinput, g.taps, dmixed, a.recurrent_input, w.taps);
}

}  // namespace

void state_space(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                 LayerActivations& a) {
  const ops::Workspace::Scope scope(*context.workspace);
  const auto& w = weights.recurrent;
  const std::array<ops::LinearTarget, 3> targets{
      {{a.recurrent_gates, &w.gate}, {a.recurrent_input, &w.input}, {a.decays, &w.decay}}};
  ops::linear(context, targets, a.normed);
  const StateSpaceInput input(pass, weights, a, *context.workspace);
  scan(input.what.heads, input.documents, input.rows(a.recalled));
  model::add_skip(input.what.heads, w.skip, input.values(input.activated), a.recalled);
}

void state_space_backward(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                          const LayerActivations& a, const LayerGradients& gradients,
                          Matrix<const float> dout, Matrix<float> dx) {
  ops::Workspace& workspace = *context.workspace;
  const ops::Workspace::Scope scope(workspace);
  const auto& w = weights.recurrent;
  const auto& g = gradients.recurrent;
  const auto take = [&](Matrix<const float> x) { return take_zeros(workspace, x.rows, x.cols); };
  const auto gated = take_matrix(workspace, dout.rows, dout.cols);
  copy(a.recurrent_gates, gated);
  ops::silu_multiply(gated, a.recalled);
  const auto dgated = take(gated);
  norm_groups_backward(pass, workspace, dgated, g.norm, dout, gated, w.norm);
  const auto dgates = take(gated);
  const auto drecalled = take(gated);
  ops::silu_multiply_backward(dgates, drecalled, dgated, a.recurrent_gates, a.recalled);

  const StateSpaceInput input(pass, weights, a, workspace);
  const auto dinput = take(a.recurrent_input);
  const auto ddecays = take(a.decays);
  through_rule(input, weights, a, gradients, workspace, drecalled, dinput, ddecays);
  const auto backward = [&](const ops::Weight& weight, Matrix<float> dweight,
                            Matrix<const float> dprojected) {
    ops::linear_backward(context, {dx, dweight, {}}, dprojected, a.normed, weight);
  };
  backward(w.gate, g.gate, dgates);
  backward(w.input, g.input, dinput);
  backward(w.decay, g.decay, ddecays);
}

}  // namespace winnow::train::detail
