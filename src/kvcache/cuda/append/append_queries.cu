// Queries of a layer that attends to entries which another layer has stored. A block takes a token
// and a KV head: a warp for each query head.
#include "base/cuda/launch.cuh"
#include "kvcache/cuda/append/append_kernels.h"
#include "kvcache/cuda/append/projection.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::kvcache::cuda {
namespace {

// By a block: a KV head's queries of a token.
template <class Format, class Row, class Number>
__device__ void take_queries(const Projection& projection, const Row& products, int token,
                             int position, int layer, ops::cuda::HeadDim<0> dim, Number* queries) {
  const int head = static_cast<int>(blockIdx.x);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::size_t heads = projection.kv_heads * projection.group;
  ops::cuda::HeadVector<0> vector(dim, width_of(projection, dim));
  project<0>(projection, products, token, position, layer, head, vector);
  if constexpr (Format::kRotated) {
    vector.rotate();
  }
  vector.store(queries + (token * heads + head * projection.group + warp) * dim);
}

template <class Format>
__global__ void __launch_bounds__(kMostAppendGroup * 32)
    step_queries_kernel(CacheView cache, Projection projection, DecodeAppend step) {
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const int token = static_cast<int>(blockIdx.y);
  const ops::cuda::HeadDim<0> dim(cache.head_dim);
  if (const int slot = step.slots[token]; slot >= 0) {  // else the row pads the batch
    take_queries<Format>(projection, step.qkv + row_of(projection, token, dim), token,
                         cache.lengths[slot], step.layer, dim, step.queries);
  }
}

template <class Format>
__global__ void __launch_bounds__(kMostAppendGroup * 32)
    chunk_queries_kernel(Projection projection, PrefillAppend chunk, int head_dim) {
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const int token = static_cast<int>(blockIdx.y);
  const ops::cuda::HeadDim<0> dim(head_dim);
  take_queries<Format>(projection, QkvRow(chunk.qkv, row_of(projection, token, dim)), token,
                       chunk.length + token, chunk.layer, dim, chunk.queries);
}

dim3 grid_of(const Projection& projection, int tokens) {
  return {static_cast<unsigned>(projection.kv_heads), static_cast<unsigned>(tokens)};
}

}  // namespace

void launch_queries(ops::EntryFormat format, const CacheView& cache, const Projection& projection,
                    const DecodeAppend& step, cudaStream_t stream) {
  ops::cuda::with_format(format, [&]<ops::EntryFormat kType>() {
    winnow::cuda::launch(step_queries_kernel<ops::cuda::FormatOf<kType>>,
                         grid_of(projection, step.batch), projection.group * 32, 0, stream, true,
                         cache, projection, step);
  });
}

void launch_queries(ops::EntryFormat format, int head_dim, const Projection& projection,
                    const PrefillAppend& chunk, cudaStream_t stream) {
  ops::cuda::with_format(format, [&]<ops::EntryFormat kType>() {
    winnow::cuda::launch(chunk_queries_kernel<ops::cuda::FormatOf<kType>>,
                         grid_of(projection, chunk.tokens), projection.group * 32, 0, stream, true,
                         projection, chunk, head_dim);
  });
}

}  // namespace winnow::kvcache::cuda
