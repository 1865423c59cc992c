// Rotary frequencies of a model, its context-extension scaling applied.
#pragma once

#include <vector>

#include "checkpoint/config.h"

namespace winnow::model {

/// theta^(-2i / head_dim) for i < head_dim / 2, scaled as config.rope says: linear divides all by
/// `factor`; llama3 divides long wavelengths, keeps short ones and blends between (Llama 3.1).
std::vector<float> rope_frequencies(const RopeConfig& rope, int head_dim);

}  // namespace winnow::model
