#include "train/recurrent_mixer.h"

namespace winnow::train::detail {

void recurrent_mixer(ops::Context& context, const LayerPass& pass, const LayerWeights& weights,
                     LayerActivations& a) {
  (mixer_of(pass).has_matrices() ? delta_net : short_conv)(context, pass, weights, a);
}

void recurrent_mixer_backward(ops::Context& context, const LayerPass& pass,
                              const LayerWeights& weights, const LayerActivations& a,
                              const LayerGradients& gradients, ops::Matrix<const float> dout,
                              ops::Matrix<float> dx) {
  (mixer_of(pass).has_matrices() ? delta_net_backward : short_conv_backward)(
      context, pass, weights, a, gradients, dout, dx);
}

std::vector<Document> documents_of(std::span<const std::int32_t> first_key) {
  std::vector<Document> documents;
  for (std::size_t t = 0; t < first_key.size(); ++t) {
    if (static_cast<std::size_t>(first_key[t]) == t) {
      documents.push_back({t, t});
    }
    documents.back().last = t + 1;
  }
  return documents;
}

}  // namespace winnow::train::detail
