// How fast this machine's CPU multiplies, for an estimate of a run's time.
#pragma once

#include "train/options.h"

namespace winnow::train {

/// Floating-point operations per second of a feed-forward's product, forward and backward, in the
/// type that `options` name: the best of several in half a second. Steps are slower: they do other
/// work, too.
double measure_product_rate(const TrainingOptions& options, const model::ModelSpec& base);

}  // namespace winnow::train
