#include "model/recurrent_mixer.h"

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

}  // namespace winnow::model
