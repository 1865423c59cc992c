// Between the host's side of appending and its kernels.
#pragma once

#include <cuda_runtime_api.h>

#include "kvcache/cuda/append/step.h"
#include "kvcache/cuda/cache_view.h"
#include "ops/kv_page.h"

namespace winnow::kvcache::cuda {

/// `cache.ring` of a chunk is that of its sequence.
void launch_append(ops::EntryFormat format, int head_dim, const CacheView& cache,
                   const Projection& projection, const DecodeAppend& step, cudaStream_t stream);

/// Of a chunk, queries and the band's entries alone: there is no window, and nothing is archived.
void launch_project(ops::EntryFormat format, int head_dim, const CacheView& cache,
                    const Projection& projection, const PrefillAppend& chunk, const BandView& band,
                    cudaStream_t stream);

/// The same for DMC.
void launch_dmc_append(ops::EntryFormat format, int head_dim, const CacheView& cache,
                       const Projection& projection, const DecodeAppend& step, cudaStream_t stream);
void launch_dmc_append(ops::EntryFormat format, int head_dim, const CacheView& cache,
                       const Projection& projection, const PrefillAppend& chunk,
                       const BandView& band, cudaStream_t stream);

void launch_append(ops::EntryFormat format, int head_dim, const CacheView& cache,
                   const Projection& projection, const PrefillAppend& chunk, const BandView& band,
                   cudaStream_t stream);

}  // namespace winnow::kvcache::cuda
