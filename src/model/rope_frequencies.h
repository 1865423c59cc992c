// Rotary frequencies, context-extension scaling applied.
#pragma once

#include <vector>

#include "model/spec.h"

namespace winnow::model {

/// theta^(-2i / channels) for i < channels / 2, scaled as `rope` says: linear divides all by
/// `factor`; llama3 divides long wavelengths, keeps short ones and blends between (Llama 3.1).
std::vector<float> rope_frequencies(const RopeSpec& rope);

}  // namespace winnow::model
