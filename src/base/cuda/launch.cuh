// Launching kernels, and programmatic dependent launch: a kernel may begin while its predecessor in
// the stream ends, and does before wait_for_predecessor() what needs nothing of it.
#pragma once

#include <cuda_runtime.h>

#include "base/cuda/device.h"

namespace winnow::cuda {

/// Returns once the predecessor is complete and what it wrote can be read. A kernel launched as
/// programmatic must come through here in at least one block, else it may be complete before its
/// predecessor is. No more than a statement on devices before Hopper.
inline __device__ void wait_for_predecessor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Lets the successor begin once all blocks have come here (or ended). Called after
/// wait_for_predecessor(), it also tells the successor that all before this kernel is complete.
inline __device__ void release_successor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Launches kernel<<<grid, block, shared, stream>>>(arguments...); `programmatic`: it may begin
/// before its predecessor is complete, where the device can do that. All kernels take the same
/// share of a multiprocessor's memory as shared (all of it): it must run dry to change that, and
/// kernels with different wishes would not overlap. Throws Error.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared,
            cudaStream_t stream, bool programmatic, const Arguments&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = programmatic && has_programmatic_launch() ? 1 : 0;
  const auto* function = reinterpret_cast<const void*>(kernel);
  check_launch(cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared),
               function);
  check_launch(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), function);
}

}  // namespace winnow::cuda
