// The ceiling of everything that reads device memory: a plain sum.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

namespace winnow::cuda {

/// Reads `memory` (device, a multiple of 16 bytes) once.
void launch_read(std::span<const std::byte> memory, unsigned* out, cudaStream_t stream);

/// Bytes per second that the device reads from a buffer far larger than its caches: the best of
/// several passes. Takes 1 GiB of device memory for that time.
double measure_read_bandwidth();

}  // namespace winnow::cuda
