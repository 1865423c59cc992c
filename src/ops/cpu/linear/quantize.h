// Quantises weights: groups of values become integers and scales.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "ops/weight.h"

namespace winnow::ops::cpu {

/// Codes and scales, in Weight's layout, of groups of QuantizedWeight::kGroup values.
///   int8  the scale puts the largest magnitude at 127
///   int4  the one with the least squared error of the scales tried, of either sign: the range is
///         not symmetric, so the sign chooses which side gets the extra step
/// Every CPU and CUDA device computes each scale and code with the same roundings.
void quantize_groups(WeightFormat format, std::span<const float> values, std::uint8_t* codes,
                     bf16* scales);

}  // namespace winnow::ops::cpu
