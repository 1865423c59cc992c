// Takes pages for a row that grows by many entries.
#pragma once

#include "kvcache/cuda/entry_place.cuh"

namespace winnow::kvcache::cuda {

/// Appends pages to a list that holds `entries` entries, so that it has room for `added` more. All
/// threads of a block.
inline __device__ void extend(const CacheView& cache, std::uint32_t* pages, int entries,
                              int added) {
  __shared__ int top;
  const int first = pages_for(entries);
  const int count = pages_for(entries + added) - first;
  __syncthreads();  // all threads have read the `top` of an earlier call
  if (threadIdx.x == 0 && count > 0) {
    top = atomicSub(cache.free_count, count);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    pages[first + i] = cache.free_pages[top - 1 - i];
  }
}

}  // namespace winnow::kvcache::cuda
