// Queries of layers that attend to another layer's entries, and those queries of large groups for
// which the kernels of other layers have no warps. A block handles one token and up to
// kMostQueryWarps query heads of one KV head, one per warp.
#include "base/cuda/launch.cuh"
#include "kvcache/cuda/append/append_kernels.h"
#include "kvcache/cuda/append/projection.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::kvcache::cuda {
namespace {

// The first query head of a group that these kernels handle.
__host__ __device__ constexpr int first_query(const Projection& projection) {
  return projection.queries_alone ? 0 : projection.query_warps();
}

// Run by one warp. No query here carries a decision: the first one of a group does.
template <class Format, class Row, class Number>
__device__ void take_query(const Projection& projection, const Row& products, int token,
                           int position, ops::cuda::HeadDim<0> dim, Number* queries) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int query = first_query(projection) + static_cast<int>(blockIdx.z) * kMostQueryWarps + warp;
  if (query >= projection.group) {
    return;
  }
  const int column = static_cast<int>(blockIdx.x) * projection.group + query;
  const int width = width_of(projection, dim);
  ops::cuda::HeadVector<0> vector(dim, ops::cuda::HeadDim<0>(width));
  vector.load(products + column * width,
              projection.bias != nullptr ? projection.bias + column * width : nullptr);
  const ops::cuda::HeadNorm norm{
      projection.query_norm != nullptr,
      projection.query_norm + (projection.own_norms ? column * width : 0), projection.eps,
      projection.norms_center};
  if (!projection.norms_after_rope) {
    ops::cuda::apply_norm(vector, norm);
  }
  rotate(projection, token, vector);
  if (projection.norms_after_rope) {
    ops::cuda::apply_norm(vector, norm);
  }
  grow(projection.query_growth, position, vector);
  if constexpr (Format::kRotated) {
    vector.rotate();
  }
  const int heads = projection.kv_heads * projection.group;
  vector.store(queries + (static_cast<std::size_t>(token) * heads + column) * dim);
}

template <class Format>
__global__ void __launch_bounds__(kMostQueryWarps * 32)
    step_queries_kernel(CacheView cache, Projection projection, DecodeAppend step) {
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const int token = static_cast<int>(blockIdx.y);
  const ops::cuda::HeadDim<0> dim(cache.head_dim);
  if (const int slot = step.slots[token]; slot >= 0) {  // else the row is padding
    take_query<Format>(projection, step.qkv + row_of(projection, token, dim), token,
                       cache.lengths[slot], dim, step.queries);
  }
}

__global__ void __launch_bounds__(kMostQueryWarps * 32)
    open_scores_kernel(CacheView cache, Projection projection, DecodeAppend step) {
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const int token = static_cast<int>(blockIdx.y);
  const int query = first_query(projection) + static_cast<int>(blockIdx.z) * kMostQueryWarps +
                    static_cast<int>(threadIdx.x) / 32;
  const int slot = step.slots[token];
  if (slot < 0 || query >= projection.group) {
    return;
  }
  const int head = static_cast<int>(blockIdx.x);
  const std::size_t own = static_cast<std::size_t>(token) * projection.kv_heads * projection.group +
                          head * projection.group + query;
  const ops::cuda::HeadDim<0> dim(cache.head_dim);
  ops::cuda::HeadVector<0> vector(dim);
  vector.load(step.queries + own * dim, nullptr);
  const float score = vector.dot(cache.open_keys + cache.row(step.layer, slot, head) * dim);
  if (threadIdx.x % 32 == 0) {
    step.open_scores[own] = score;
  }
}

template <class Format>
__global__ void __launch_bounds__(kMostQueryWarps * 32)
    chunk_queries_kernel(Projection projection, PrefillAppend chunk, int head_dim) {
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const int token = static_cast<int>(blockIdx.y);
  const ops::cuda::HeadDim<0> dim(head_dim);
  take_query<Format>(projection, QkvRow(chunk.qkv, row_of(projection, token, dim)), token,
                     chunk.length + token, dim, chunk.queries);
}

dim3 grid_of(const Projection& projection, int tokens) {
  const int queries = projection.group - first_query(projection);
  return {static_cast<unsigned>(projection.kv_heads), static_cast<unsigned>(tokens),
          static_cast<unsigned>((queries + kMostQueryWarps - 1) / kMostQueryWarps)};
}

}  // namespace

void launch_queries(ops::EntryFormat format, const CacheView& cache, const Projection& projection,
                    const DecodeAppend& step, cudaStream_t stream) {
  ops::cuda::with_format(format, [&]<ops::EntryFormat kType>() {
    winnow::cuda::launch(step_queries_kernel<ops::cuda::FormatOf<kType>>,
                         grid_of(projection, step.batch), projection.query_warps() * 32, 0, stream,
                         true, cache, projection, step);
  });
}

void launch_open_scores(const CacheView& cache, const Projection& projection,
                        const DecodeAppend& step, cudaStream_t stream) {
  winnow::cuda::launch(open_scores_kernel, grid_of(projection, step.batch),
                       projection.query_warps() * 32, 0, stream, true, cache, projection, step);
}

void launch_queries(ops::EntryFormat format, int head_dim, const Projection& projection,
                    const PrefillAppend& chunk, cudaStream_t stream) {
  ops::cuda::with_format(format, [&]<ops::EntryFormat kType>() {
    winnow::cuda::launch(chunk_queries_kernel<ops::cuda::FormatOf<kType>>,
                         grid_of(projection, chunk.tokens), projection.query_warps() * 32, 0,
                         stream, true, projection, chunk, head_dim);
  });
}

}  // namespace winnow::kvcache::cuda
