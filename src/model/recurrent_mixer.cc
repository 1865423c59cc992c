#include "model/recurrent_mixer.h"

namespace winnow::model {

void recurrent_mixer(ops::Context& context, const ModelSpec& spec, int layer,
                     const RecurrentWeights& w, std::span<const SequenceStep> steps,
                     ops::Matrix<const float> input, ops::Matrix<float> out) {
  const bool has_matrices = spec.layer(layer).recurrent()->has_matrices();
  (has_matrices ? detail::delta_net : detail::short_conv)(context, spec, layer, w, steps, input,
                                                          out);
}

}  // namespace winnow::model
