#include "model/recurrent_mixer.h"

#include "ops/causal_conv.h"

namespace winnow::model {

void recurrent_mixer(ops::Context& context, const ModelSpec& spec, int layer,
                     const RecurrentWeights& w, std::span<const SequenceStep> steps,
                     ops::Matrix<const float> input, ops::Matrix<float> out) {
  using Kind = RecurrentSpec::Kind;
  const Kind kind = spec.layer(layer).recurrent()->kind;
  const auto mixer = kind == Kind::delta_net    ? detail::delta_net
                     : kind == Kind::short_conv ? detail::short_conv
                                                : detail::state_space;
  mixer(context, spec, layer, w, steps, input, out);
}

std::vector<ops::DeltaRuleChunk> detail::convolve(const ModelSpec& spec, int layer,
                                                  const RecurrentWeights& w,
                                                  std::span<const SequenceStep> steps,
                                                  const RecurrentProjections& projected,
                                                  ops::Matrix<float> mixed,
                                                  ops::Matrix<float> out) {
  const RecurrentSpec& what = *spec.layer(layer).recurrent();
  const ops::DeltaRuleShape& heads = what.heads;
  const auto matrices = static_cast<std::size_t>(heads.state_size());
  std::vector<ops::DeltaRuleChunk> chunks;
  std::size_t first = 0;
  for (const SequenceStep& step : steps) {
    const std::size_t last = first + step.tokens.size();
    const auto state = step.cache->state().layer(spec.recurrent_before(layer));
    const auto own = mixed.slice(first, last);
    ops::causal_conv(own, projected.input.slice(first, last), w.taps, w.conv_bias,
                     state.subspan(matrices));
    chunks.push_back({.queries = columns(own, what.first_query(), heads.key_width()),
                      .keys = columns(own, what.first_key(), heads.key_width()),
                      .values = columns(own, what.first_value(), heads.value_width()),
                      .decays = projected.decays.slice(first, last),
                      .rates = projected.rates.slice(first, last),
                      .state = state.first(matrices),
                      .out = out.slice(first, last)});
    first = last;
  }
  return chunks;
}

}  // namespace winnow::model
