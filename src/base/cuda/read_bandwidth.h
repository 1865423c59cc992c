// Measures the read bandwidth of device memory, with a plain sum.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

namespace winnow::cuda {

/// Reads `memory` (device, a multiple of 16 bytes) once.
void launch_read(std::span<const std::byte> memory, unsigned* out, cudaStream_t stream);

/// Bytes per second that the device reads from a buffer far larger than its caches: the best of
/// several passes. Uses 1 GiB of device memory meanwhile.
double measure_read_bandwidth();

}  // namespace winnow::cuda
