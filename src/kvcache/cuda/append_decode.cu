// One token per sequence.
#include "base/cuda/launch.cuh"
#include "kvcache/cuda/append_decode.cuh"
#include "kvcache/cuda/append_kernels.h"

namespace winnow::kvcache::cuda {
namespace {

// A block takes a sequence and a KV head, a warp one vector.
template <class Format, int D>
__global__ void append_kernel(CacheView cache, Projection projection, DecodeAppend step) {
  TokenAppend<Format, D, WholeBlock, 1> append(cache, projection, step, blockIdx.x, blockIdx.y);
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  append.take(projection, step);
}

__global__ void set_length_kernel(CacheView cache, int slot, int length) {
  cache.lengths[slot] = length;
}

template <class Format>
void launch(int head_dim, const CacheView& cache, const Projection& projection,
            const DecodeAppend& step, cudaStream_t stream) {
  const dim3 grid(projection.kv_heads, step.batch);
  const int threads = (projection.group + 2) * 32;
  const auto run = [&](auto* kernel) {
    winnow::cuda::launch(kernel, grid, threads, 0, stream, true, cache, projection, step);
  };
  switch (head_dim) {
    case 64:
      return run(append_kernel<Format, 64>);
    case 80:
      return run(append_kernel<Format, 80>);
    case 96:
      return run(append_kernel<Format, 96>);
    default:
      return run(append_kernel<Format, 128>);
  }
}

}  // namespace

void launch_append(DType format, int head_dim, const CacheView& cache, const Projection& projection,
                   const DecodeAppend& step, cudaStream_t stream) {
  switch (format) {
    case DType::bf16:
      return launch<ops::cuda::Bf16Format>(head_dim, cache, projection, step, stream);
    case DType::f8e4m3:
      return launch<ops::cuda::F8Format>(head_dim, cache, projection, step, stream);
    default:
      return launch<ops::cuda::I8Format>(head_dim, cache, projection, step, stream);
  }
}

void launch_set_length(const CacheView& cache, int slot, int length, cudaStream_t stream) {
  set_length_kernel<<<1, 1, 0, stream>>>(cache, slot, length);
  winnow::cuda::check_launch("advance the cache");
}

}  // namespace winnow::kvcache::cuda
