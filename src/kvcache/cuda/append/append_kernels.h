// The interface between the host side of appending and its kernels.
#pragma once

#include <cuda_runtime_api.h>

#include "kvcache/cuda/append/step.h"
#include "kvcache/cuda/cache_view.h"
#include "ops/cuda/pages/kv_page.h"
#include "ops/kv_page.h"

namespace winnow::kvcache::cuda {

/// The most threads of a block of query_warps() + 2 warps: more if the shape is a run-time argument
/// (D = 0).
template <int D>
inline constexpr int kMostAppendThreads = D > 0 ? 10 * 32 : (kMostQueryWarps + 2) * 32;

/// Whether the kernels that are built for a head dimension support a layer.
constexpr bool has_own_append(int head_dim, const Projection& projection) {
  return ops::cuda::has_own_kernels(head_dim, projection.group) && projection.is_plain();
}

/// For a chunk, `cache.ring` is the ring of its sequence.
void launch_append(ops::EntryFormat format, int head_dim, const CacheView& cache,
                   const Projection& projection, const DecodeAppend& step, cudaStream_t stream);

/// Writes a chunk's queries and the band's entries only: no window, and nothing is archived.
void launch_project(ops::EntryFormat format, int head_dim, const CacheView& cache,
                    const Projection& projection, const PrefillAppend& chunk, const BandView& band,
                    cudaStream_t stream);

/// Writes queries only: all of them if the layer stores no entries, else those for which
/// launch_append() has no warps.
void launch_queries(ops::EntryFormat format, const CacheView& cache, const Projection& projection,
                    const DecodeAppend& step, cudaStream_t stream);
void launch_queries(ops::EntryFormat format, int head_dim, const Projection& projection,
                    const PrefillAppend& chunk, cudaStream_t stream);

/// DMC: the products of those queries with the open keys, once both are written.
void launch_open_scores(const CacheView& cache, const Projection& projection,
                        const DecodeAppend& step, cudaStream_t stream);

/// launch_append() for DMC.
void launch_dmc_append(ops::EntryFormat format, int head_dim, const CacheView& cache,
                       const Projection& projection, const DecodeAppend& step, cudaStream_t stream);
void launch_dmc_append(ops::EntryFormat format, int head_dim, const CacheView& cache,
                       const Projection& projection, const PrefillAppend& chunk,
                       const BandView& band, cudaStream_t stream);

void launch_append(ops::EntryFormat format, int head_dim, const CacheView& cache,
                   const Projection& projection, const PrefillAppend& chunk, const BandView& band,
                   cudaStream_t stream);

}  // namespace winnow::kvcache::cuda
