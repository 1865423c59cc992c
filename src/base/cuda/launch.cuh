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

/// Launches kernel<<<blocks, threads, 0, stream>>>(arguments...) as programmatic, its blocks in
/// clusters of `cluster` (1 on devices before Hopper). Throws Error.
template <class... Parameters, class... Arguments>
void launch_clusters(void (*kernel)(Parameters...), int blocks, int cluster, int threads,
                     cudaStream_t stream, const Arguments&... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(cluster);
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = has_programmatic_launch() ? 2 : 0;
  check_launch(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...),
               reinterpret_cast<const void*>(kernel));
}

}  // namespace winnow::cuda
