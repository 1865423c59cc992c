// Conversion of tensors to another type.
#pragma once

#include <span>

#include "base/tensor.h"

namespace winnow::train {

/// `values` as f32, f16 or bf16.
Buffer<std::byte> rounded(std::span<const float> values, DType type);

}  // namespace winnow::train
