#include "train/flops.h"

#include "model/checkpoint.h"
#include "model/cost.h"
#include "train/backend.h"

namespace winnow::train {
namespace {

// Both products of causal attention, and the three with a recurrent layer's state, forward only.
double mixer_flops(const model::ModelSpec& spec, std::size_t length) {
  double flops = 0.0;
  for (const model::LayerSpec& layer : spec.layers) {
    if (const model::AttentionSpec* attention = layer.attention()) {
      flops += 2.0 * (attention->query_width() + attention->attended_width()) *
               mean_visible_entries(attention->reach, static_cast<double>(length));
    } else {
      flops += 6.0 * layer.recurrent()->heads.state_size();
    }
  }
  return flops;
}

}  // namespace

double flops_per_token(const TrainingOptions& options, const model::ModelSpec& base) {
  const bool frozen = trained_part(student_config(options, base)) == Trained::decisions;
  const bool distilled = options.retrofit && options.retrofit->main_loss == MainLoss::distillation;
  const double weights = multiplied_weights(base);
  const double mixers = mixer_flops(base, options.length);
  const double student = weights * (frozen ? 4.0 : 6.0) + mixers * 3.0;
  return student + (distilled ? weights * 2.0 + mixers : 0.0);
}

}  // namespace winnow::train
