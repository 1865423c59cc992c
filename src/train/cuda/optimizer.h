// An update's operations on arrays of parameters in device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "base/dtype.h"

namespace winnow::train::cuda {

/// *sum += the sum of squares of x [count], a multiple of 4.
void add_squares(double* sum, const float* x, std::size_t count, cudaStream_t stream);

/// to = from, rounded to bf16; `count` elements, a multiple of 8.
void round_values(bf16* to, const float* from, std::size_t count, cudaStream_t stream);

/// AdamW::Update with its powers computed: the factors for each element.
struct AdamWStep {
  float beta1 = 0.0F;
  float beta2 = 0.0F;
  float epsilon = 0.0F;
  float rate = 0.0F;             // divided by 1 - beta1^step
  float correction = 1.0F;       // 1 / sqrt(1 - beta2^step)
  float kept = 1.0F;             // 1 - rate * decay
  float gradient_factor = 1.0F;  // clipping
};

/// Arrays of `count` elements, a multiple of 8.
struct AdamWArrays {
  float* values = nullptr;
  bf16* rounded = nullptr;  // also receives the new values; null: not needed
  const float* gradients = nullptr;
  float* first = nullptr;
  float* second = nullptr;
  std::size_t count = 0;
};

void apply_adamw(const AdamWStep& step, const AdamWArrays& arrays, cudaStream_t stream);

}  // namespace winnow::train::cuda
