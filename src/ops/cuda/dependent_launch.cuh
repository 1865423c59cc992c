// Programmatic dependent launch: a kernel may begin while the one before it in the stream finishes.
#pragma once

#include <cuda_runtime_api.h>

#include "base/cuda/device.h"

namespace winnow::ops::cuda {

/// Waits until the kernels before this one are done and what they wrote is seen. Every block must.
inline __device__ void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// The next kernel may begin once every block has said so.
inline __device__ void let_next_kernel_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Launches `kernel`; with `overlap` it may begin before the one ahead of it in the stream is done.
/// All of a multiprocessor's memory is made shared memory as far as the kernel's blocks can use it:
/// kernels that want different splits cannot share a multiprocessor.
template <class... Parameters, class... Arguments>
void launch_dependent(void (*kernel)(Parameters...), int blocks, int threads,
                      std::size_t shared_bytes, cudaStream_t stream, bool overlap,
                      Arguments&&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = overlap ? 1 : 0;
  winnow::cuda::check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...),
                      "launch a kernel");
}

/// Lets `kernel` have this much dynamic shared memory, and the split that goes with it.
template <class Kernel>
void allow_shared_memory(Kernel* kernel, std::size_t bytes) {
  winnow::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(bytes)),
                      "shared memory of a kernel");
  winnow::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                           cudaSharedmemCarveoutMaxShared),
                      "shared memory of a kernel");
}

}  // namespace winnow::ops::cuda
