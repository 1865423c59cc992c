// Rotary angles on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace winnow::ops::cuda {

/// angles [rows, half] = cosine and sine of position * frequency, times `factor` (YaRN's attention
/// factor): positions [rows], frequencies
/// [half] in radians per position, all in device memory. The product is rounded to float, as on the
/// CPU.
void rope_angles(float2* angles, const float* frequencies, int half, const std::int32_t* positions,
                 int rows, cudaStream_t stream, float factor = 1.0F);

}  // namespace winnow::ops::cuda
