// DMC, one token per sequence. A block handles one sequence and one KV head, with warps as in
// append.cu. It merges the token into the open entry, or archives that entry and opens a new one.
#include "base/cuda/launch.cuh"
#include "kvcache/cuda/append/append_kernels.h"
#include "kvcache/cuda/append/append_row.cuh"
#include "kvcache/cuda/append/open_entry.cuh"
#include "kvcache/cuda/append/projection.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::kvcache::cuda {
namespace {

template <class Format, int D>
__global__ void __launch_bounds__(kMostAppendThreads<D>)
    dmc_append_kernel(CacheView cache, Projection projection, DecodeAppend step) {
  const ops::cuda::HeadDim<D> dim(cache.head_dim);
  const int head = blockIdx.x;
  const int token = blockIdx.y;
  const int warp = threadIdx.x / 32;
  const int group = projection.group;
  const int queries = projection.query_warps();
  const int slot = step.slots[token];
  if (slot < 0) {  // the row pads the batch
    winnow::cuda::wait_for_predecessor();
    return;
  }
  const int length = cache.lengths[slot];
  const std::size_t row = cache.row(step.layer, slot, head);
  const std::size_t heads = projection.kv_heads * group;
  const int count = cache.archive_counts[row];
  const float weight = cache.open_weights[row];
  float* open = (warp == queries ? cache.open_keys : cache.open_values) + row * dim;
  ops::cuda::HeadVector<D> before(dim);
  if (warp >= queries && length > 0) {
    before.load(open, nullptr);
  }

  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  __shared__ float omega;
  __shared__ float open_key[D > 0 ? D : ops::cuda::kMostHeadDim];
  __shared__ int archived;  // slot of the entry that is closed, or -1
  ops::cuda::HeadVector<D> vector(dim, width_of(projection, dim));
  const float* qkv = step.qkv + row_of(projection, token, dim);
  const bool decision =
      project<D>(projection, qkv, token, length, step.layer, head, vector, &omega).taken;
  if constexpr (Format::kRotated) {
    vector.rotate();
  }
  const bool merges = decision && length > 0;
  if (threadIdx.x == 0) {
    archived = length > 0 && !merges ? push_archive(cache, row, count) : -1;
    cache.open_weights[row] = merges ? __fadd_rn(weight, omega) : omega;
  }
  __syncthreads();
  if (warp < queries) {
    vector.store(step.queries + (token * heads + head * group + warp) * dim);
  } else {
    if (archived >= 0) {
      const EntryPlace<typename Format::Code, D> place(
          cache, cache.archive_pages + row * cache.archive_stride, archived);
      store_half<Format>(before, place, warp == queries);
    }
    if (merges) {
      vector.mix(before, share_of(weight, omega));
    }
    vector.store(open);
    if (warp == queries) {
      vector.store(open_key);
    }
  }
  __syncthreads();
  if (warp < queries) {
    const float score = vector.dot(open_key);
    if (threadIdx.x % 32 == 0) {
      step.open_scores[token * heads + head * group + warp] = score;
    }
  }
}

}  // namespace

void launch_dmc_append(ops::EntryFormat format, int head_dim, const CacheView& cache,
                       const Projection& projection, const DecodeAppend& step,
                       cudaStream_t stream) {
  const dim3 grid(projection.kv_heads, step.batch);
  const int threads = (projection.query_warps() + 2) * 32;
  ops::cuda::with_any_shape(
      format, head_dim, has_own_append(head_dim, projection), [&]<ops::EntryFormat kType, int D>() {
        winnow::cuda::launch(dmc_append_kernel<ops::cuda::FormatOf<kType>, D>, grid, threads, 0,
                             stream, true, cache, projection, step);
      });
}

}  // namespace winnow::kvcache::cuda
