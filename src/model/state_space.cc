// The state space of Mamba 2 (Dao and Gu 2024).
#include <array>

#include "model/mixer_parts.h"
#include "model/recurrent_mixer.h"
#include "ops/activation.h"
#include "ops/delta_rule.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace winnow::model::detail {
namespace {

void multiply(ops::Matrix<float> x, float multiplier) {
  if (multiplier != 1.0F) {
    ops::scale(x, multiplier);
  }
}

// `out` has the gates, and receives the output.
void end(const RecurrentSpec& what, const RecurrentWeights& w, float eps,
         ops::Matrix<float> recalled, ops::Matrix<float> out) {
  using Norm = RecurrentSpec::Norm;
  if (what.norm == Norm::before_gates) {
    norm_groups(what.norm_groups, recalled, w.norm, eps);
  }
  ops::silu_multiply(out, recalled);
  if (what.norm == Norm::behind_gates) {
    norm_groups(what.norm_groups, out, w.norm, eps);
  }
  multiply(out, what.multipliers.output);
}

}  // namespace

void state_space(ops::Context& context, const ModelSpec& spec, int layer, const RecurrentWeights& w,
                 std::span<const SequenceStep> steps, ops::Matrix<const float> input,
                 ops::Matrix<float> out) {
  const RecurrentSpec& what = *spec.layer(layer).recurrent();
  const ops::DeltaRuleShape& heads = what.heads;
  ops::Workspace& workspace = *context.workspace;
  const ops::Workspace::Scope scope(workspace);
  const std::size_t rows = input.rows;
  const auto projected = take(workspace, rows, what.channels());
  const auto decays = take(workspace, rows, heads.value_heads);
  const auto rates = take(workspace, rows, heads.value_heads);
  // The gates are written to the output's memory.
  const std::array<ops::LinearTarget, 3> targets{
      {{out, &w.gate}, {projected, &w.input}, {decays, &w.decay}}};
  ops::linear(context, targets, input);
  const StateSpaceMultipliers& m = what.multipliers;
  multiply(out, m.gates);
  multiply(columns(projected, what.first_value(), heads.value_width()), m.values);
  multiply(columns(projected, what.first_key(), heads.key_width()), m.keys);
  multiply(columns(projected, what.first_query(), heads.key_width()), m.queries);
  multiply(decays, m.rates);
  ops::state_space_gates(decays, rates, w.log_decay, w.decay_bias, what.rates);

  const auto mixed = take(workspace, rows, what.channels());
  const auto recalled = take(workspace, rows, heads.value_width());
  const auto values = columns(mixed, what.first_value(), heads.value_width());
  const auto chunks = convolve(spec, layer, w, steps,
                               {.input = projected, .gates = out, .rates = rates, .decays = decays},
                               mixed, recalled);
  ops::activate(ops::Activation::silu, mixed);
  ops::delta_rule(heads, chunks);
  add_skip(heads, w.skip, values, recalled);
  end(what, w, spec.layer(layer).norm.eps, recalled, out);
}

}  // namespace winnow::model::detail
