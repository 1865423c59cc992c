// Launching kernels, and programmatic dependent launch: a kernel may begin while its predecessor in
// the stream ends. Before wait_for_predecessor() it does work that does not depend on that kernel.
#pragma once

#include <cuda_runtime.h>

#include "base/cuda/device.h"

namespace winnow::cuda {

/// Returns once the predecessor is complete and its writes are visible. In a kernel launched as
/// programmatic, at least one block must call this; else the kernel may be complete before its
/// predecessor is. Does nothing on devices before Hopper.
inline __device__ void wait_for_predecessor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Lets the successor begin once all blocks have called this (or ended). If it is called after
/// wait_for_predecessor(), the successor can rely on all kernels before this one being complete.
inline __device__ void release_successor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Prefetches the line of global memory at an address into the L2 cache.
inline __device__ void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

/// A launch attribute: the kernel may begin before its predecessor is complete.
inline cudaLaunchAttribute programmatic_launch() {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

/// A launch attribute: blocks come in clusters of `blocks`.
inline cudaLaunchAttribute clusters_of(int blocks) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(blocks);
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  return attribute;
}

/// Launches kernel(arguments...). All kernels use the same shared-memory carveout (the maximum): a
/// multiprocessor must be idle to change it, so kernels with different carveouts would not
/// overlap. Throws Error.
template <class... Parameters, class... Arguments>
void launch_as(const cudaLaunchConfig_t& config, void (*kernel)(Parameters...),
               const Arguments&... arguments) {
  const auto* function = reinterpret_cast<const void*>(kernel);
  check_launch(cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared),
               function);
  check_launch(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), function);
}

/// Launches kernel<<<grid, block, shared, stream>>>(arguments...). `programmatic`: it may begin
/// before its predecessor is complete, if the device supports that. Throws Error.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared,
            cudaStream_t stream, bool programmatic, const Arguments&... arguments) {
  cudaLaunchAttribute attribute = programmatic_launch();
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = programmatic && has_programmatic_launch() ? 1 : 0;
  launch_as(config, kernel, arguments...);
}

/// The same with blocks in clusters of `cluster` (1 on devices before Hopper).
template <class... Parameters, class... Arguments>
void launch_clusters(void (*kernel)(Parameters...), int blocks, int cluster, int threads,
                     std::size_t shared, cudaStream_t stream, bool programmatic,
                     const Arguments&... arguments) {
  cudaLaunchAttribute attributes[] = {clusters_of(cluster), programmatic_launch()};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = !has_programmatic_launch() ? 0 : programmatic ? 2 : 1;  // the first ones only
  launch_as(config, kernel, arguments...);
}

/// The number of clusters of `blocks` blocks that the device can hold at once.
template <class... Parameters>
int resident_clusters(void (*kernel)(Parameters...), int blocks, int threads, std::size_t shared) {
  cudaLaunchAttribute attribute = clusters_of(blocks);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config), "resident clusters");
  return clusters;
}

}  // namespace winnow::cuda
