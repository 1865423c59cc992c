// Far dropout on a device.
#pragma once

#include <cuda_runtime_api.h>

#include "train/far_dropout.h"

namespace winnow::train::cuda {

/// train::far_bias() in device memory: bias [rows, kv_heads], first_key [rows], one seed.
void far_bias(float* bias, const LocalHeads& local, const std::uint64_t* seed,
              const std::int32_t* first_key, int rows, int kv_heads, cudaStream_t stream);

}  // namespace winnow::train::cuda
