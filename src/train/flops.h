// Arithmetic of training, from which utilisation is computed.
#pragma once

#include "train/options.h"

namespace winnow::train {

/// Floating-point operations per token, products only: 2 for each weight of a product forward,
/// 2 backward towards the input and 2 towards the weight where it is trained, the teacher's forward
/// pass, and causal attention over each layer's reach (2 products forward, 4 backward).
/// Recomputation does not count.
double flops_per_token(const TrainingOptions& options, const model::ModelSpec& base);

}  // namespace winnow::train
