// Between the host's side of the device cache and its kernels: whole sequences.
#pragma once

#include <cuda_runtime_api.h>

#include "kvcache/cuda/cache_view.h"

namespace winnow::kvcache::cuda {

/// Puts all pages [0, capacity) on the free list.
void launch_fill_free_list(const CacheView& cache, int capacity, cudaStream_t stream);

/// Gives a sequence's pages back; its slot is as new afterwards.
void launch_release(const CacheView& cache, int slot, cudaStream_t stream);

/// Makes slot `to`, which is new, a copy of slot `from`.
void launch_fork(const CacheView& cache, int from, int to, cudaStream_t stream);

}  // namespace winnow::kvcache::cuda
