// Rounding of many floats.
#pragma once

#include <span>

#include "base/dtype.h"

namespace winnow::ops::cpu {

/// to[i] = to_bf16(from[i]).
void round_to_bf16(std::span<const float> from, bf16* to);

}  // namespace winnow::ops::cpu
