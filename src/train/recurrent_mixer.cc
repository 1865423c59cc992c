#include "train/recurrent_mixer.h"

namespace winnow::train::detail {

using Kind = model::RecurrentSpec::Kind;

void recurrent_mixer(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                     LayerActivations& a) {
  const Kind kind = mixer_of(pass).kind;
  const auto mixer = kind == Kind::delta_net    ? delta_net
                     : kind == Kind::short_conv ? short_conv
                                                : state_space;
  mixer(context, pass, weights, a);
}

void recurrent_mixer_backward(ops::Context& context, const LayerPass& pass,
                              const LayerWeights& weights, const LayerActivations& a,
                              const LayerGradients& gradients, ops::Matrix<const float> dout,
                              ops::Matrix<float> dx) {
  const Kind kind = mixer_of(pass).kind;
  const auto backward = kind == Kind::delta_net    ? delta_net_backward
                        : kind == Kind::short_conv ? short_conv_backward
                                                   : state_space_backward;
  backward(context, pass, weights, a, gradients, dout, dx);
}

}  // namespace winnow::train::detail
