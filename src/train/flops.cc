#include "train/flops.h"

#include "model/checkpoint.h"
#include "train/backend.h"

namespace winnow::train {
namespace {

// Weights that a token is multiplied with.
double product_weights(const model::ModelSpec& spec) {
  const double queries = 1.0 * spec.hidden * spec.attention().heads * spec.attention().head_dim;
  const double keys = 1.0 * spec.hidden * spec.attention().kv_heads * spec.attention().head_dim;
  const double mlp = 3.0 * spec.hidden * spec.feed_forward().intermediate;
  return spec.layer_count() * (2.0 * queries + 2.0 * keys + mlp) + 1.0 * spec.hidden * spec.vocab;
}

// Both products of causal attention, forward: half of the sequence on average.
double attention_flops(const model::ModelSpec& spec, std::size_t length) {
  return 2.0 * static_cast<double>(length) * spec.layer_count() * spec.attention().heads *
         spec.attention().head_dim;
}

}  // namespace

double flops_per_token(const TrainingOptions& options, const model::ModelSpec& base) {
  const bool frozen = trained_part(student_config(options, base)) == Trained::decisions;
  const bool distilled = options.retrofit && options.retrofit->main_loss == MainLoss::distillation;
  const double weights = product_weights(base);
  const double attention = attention_flops(base, options.length);
  const double student = weights * (frozen ? 4.0 : 6.0) + attention * 3.0;
  return student + (distilled ? weights * 2.0 + attention : 0.0);
}

}  // namespace winnow::train
