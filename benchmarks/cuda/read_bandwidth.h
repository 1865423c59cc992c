// The ceiling of everything that reads memory: a plain sum.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

namespace winnow {

/// Reads `memory` (device, a multiple of 16 bytes) once.
void launch_read(std::span<const std::byte> memory, unsigned* out, cudaStream_t stream);

}  // namespace winnow
