// One token per sequence under rules that attend in a kernel of their own (TOVA, H2O, Quest), which
// know no window. A block takes a sequence and a KV head: group + 2 warps, one for each query head,
// one for the key, one for the value.
#include "base/cuda/launch.cuh"
#include "kvcache/cuda/append_kernels.h"
#include "kvcache/cuda/append_row.cuh"
#include "kvcache/cuda/open_entry.cuh"
#include "kvcache/cuda/projection.cuh"
#include "ops/cuda/kernel_shape.cuh"

namespace winnow::kvcache::cuda {
namespace {

template <class Format, int D>
__global__ void append_kernel(CacheView cache, Projection projection, DecodeAppend step) {
  const int head = blockIdx.x;
  const int token = blockIdx.y;
  const int warp = threadIdx.x / 32;
  const int group = projection.group;
  const int slot = step.slots[token];
  if (slot < 0) {  // the row pads the batch
    winnow::cuda::wait_for_predecessor();
    return;
  }
  const int length = cache.lengths[slot];
  const std::size_t row = cache.row(step.layer, slot, head);
  const std::size_t heads = projection.kv_heads * group;
  const int count = cache.archive_counts[row];

  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  ops::cuda::HeadVector<D> vector;
  const float* qkv = step.qkv + token * (heads + 2 * projection.kv_heads) * D;
  project<D>(projection, qkv, token, length, step.layer, head, vector);
  if constexpr (Format::kRotated) {
    vector.rotate();
  }
  if (warp < group) {
    vector.store(step.queries + (token * heads + head * group + warp) * D);
  }
  __shared__ int newest;
  if (threadIdx.x == 0) {
    // After an entry has been dropped (TOVA, H2O) the page is there.
    newest = push_archive(cache, row, count, count == length);
  }
  __syncthreads();
  if (warp >= group) {
    const EntryPlace<typename Format::Code, D> place(
        cache, cache.archive_pages + row * cache.archive_stride, newest);
    store_half<Format>(vector, place, warp == group);
  }
}

}  // namespace

void launch_append(ops::EntryFormat format, int head_dim, const CacheView& cache,
                   const Projection& projection, const DecodeAppend& step, cudaStream_t stream) {
  const dim3 grid(projection.kv_heads, step.batch);
  const int threads = (projection.group + 2) * 32;
  ops::cuda::with_shape(format, head_dim, [&]<ops::EntryFormat kType, int D>() {
    winnow::cuda::launch(append_kernel<ops::cuda::FormatOf<kType>, D>, grid, threads, 0, stream,
                         true, cache, projection, step);
  });
}

}  // namespace winnow::kvcache::cuda
