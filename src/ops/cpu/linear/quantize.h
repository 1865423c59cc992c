// Quantising weights: groups of values to integers and scales.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "ops/weight.h"

namespace winnow::ops::cpu {

/// Codes and scales, as Weight lays them out, of groups of QuantizedWeight::kGroup values.
///   int8  the scale puts the largest magnitude at 127
///   int4  the scale of either sign with the least squared error of those tried: the range is not
///         symmetric, so the sign chooses which side gets the extra step
/// Each scale and code is computed by the same roundings on every CPU, and on CUDA devices.
void quantize_groups(WeightFormat format, std::span<const float> values, std::uint8_t* codes,
                     bf16* scales);

}  // namespace winnow::ops::cpu
