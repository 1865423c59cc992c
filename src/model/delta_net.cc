// The gated delta net of Qwen3-Next (Yang, Kautz and Hatamizadeh 2024).
#include <array>

#include "model/mixer_parts.h"
#include "model/recurrent_mixer.h"
#include "ops/activation.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace winnow::model::detail {
namespace {

using ops::Matrix;

void project(ops::Context& context, const ModelSpec& spec, const ops::DeltaRuleShape& heads,
             const RecurrentWeights& w, Matrix<const float> x, const RecurrentProjections& to) {
  if (!spec.names.joins_recurrent) {
    const std::array<ops::LinearTarget, 4> targets{
        {{to.input, &w.input}, {to.gates, &w.gate}, {to.rates, &w.rate}, {to.decays, &w.decay}}};
    return ops::linear(context, targets, x);
  }
  const ops::Workspace::Scope scope(*context.workspace);
  const auto all = take(*context.workspace, x.rows, w.input.rows);
  const auto small = take(*context.workspace, x.rows, w.rate.rows);
  const std::array<ops::LinearTarget, 2> targets{{{all, &w.input}, {small, &w.rate}}};
  ops::linear(context, targets, x);
  split_recurrent(heads, all, small, to);
}

void norm_lengths(const LengthNorm& norm, Matrix<float> x) {
  const auto head_dim = static_cast<int>(norm.weight.size());
  for (int first = 0; first < static_cast<int>(x.cols); first += head_dim) {
    const auto head = columns(x, first, head_dim);
    ops::rms_norm(head, head, norm.weight, norm.eps);
  }
}

}  // namespace

void delta_net(ops::Context& context, const ModelSpec& spec, int layer, const RecurrentWeights& w,
               std::span<const SequenceStep> steps, Matrix<const float> input, Matrix<float> out) {
  const RecurrentSpec& what = *spec.layer(layer).recurrent();
  const ops::DeltaRuleShape& heads = what.heads;
  ops::Workspace& workspace = *context.workspace;
  const ops::Workspace::Scope scope(workspace);
  const std::size_t rows = input.rows;
  // The gates are written to the output's memory.
  const RecurrentProjections projected{.input = take(workspace, rows, what.channels()),
                                       .gates = out,
                                       .rates = take(workspace, rows, heads.value_heads),
                                       .decays = take(workspace, rows, heads.value_heads)};
  project(context, spec, heads, w, input, projected);
  ops::delta_gates(projected.decays, projected.rates, w.log_decay, w.decay_bias);

  const auto mixed = take(workspace, rows, what.channels());
  const auto recalled = take(workspace, rows, heads.value_width());
  const int keys = heads.key_width();
  const auto chunks = convolve(spec, layer, w, steps, projected, mixed, recalled);
  ops::activate(ops::Activation::silu, mixed);
  norm_lengths(query_length(heads), columns(mixed, 0, keys));
  norm_lengths(key_length(heads), columns(mixed, keys, keys));
  ops::delta_rule(heads, chunks);

  const Matrix<float> by_head(recalled.data, rows * static_cast<std::size_t>(heads.value_heads),
                              static_cast<std::size_t>(heads.value_dim));
  ops::rms_norm(by_head, by_head, w.norm, spec.layer(layer).norm.eps);
  ops::silu_multiply(out, recalled);
}

}  // namespace winnow::model::detail
