// The short convolution of LFM2 (Liquid AI 2025): out = c * conv(b * x) with projections b, c, x.
#include <array>

#include "model/recurrent_mixer.h"
#include "ops/activation.h"
#include "ops/causal_conv.h"
#include "ops/linear.h"

namespace winnow::model::detail {

void short_conv(ops::Context& context, const ModelSpec& spec, int layer, const RecurrentWeights& w,
                std::span<const SequenceStep> steps, ops::Matrix<const float> input,
                ops::Matrix<float> out) {
  const int channels = spec.layer(layer).recurrent()->channels();
  ops::Workspace& workspace = *context.workspace;
  const ops::Workspace::Scope scope(workspace);
  const auto gated = take(workspace, input.rows, channels);
  const auto mixed = take(workspace, input.rows, channels);  // at first the gates of the input
  // The output's gates are written to the output's memory.
  const std::array<ops::LinearTarget, 3> targets{
      {{gated, &w.input}, {mixed, &w.input_gate}, {out, &w.gate}}};
  ops::linear(context, targets, input);
  ops::multiply(gated, mixed);
  std::size_t first = 0;
  for (const SequenceStep& step : steps) {
    const std::size_t last = first + step.tokens.size();
    ops::causal_conv(mixed.slice(first, last), gated.slice(first, last), w.taps, w.conv_bias,
                     step.cache->state().layer(spec.recurrent_before(layer)));
    first = last;
  }
  ops::multiply(out, mixed);
}

}  // namespace winnow::model::detail
