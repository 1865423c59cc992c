// Rotates outputs of attention over rotated entries back.
#include "base/cuda/device.h"
#include "ops/cuda/pages/head_vector.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"
#include "ops/cuda/prefill/prefill_attention_kernels.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kWarps = 8;

// A warp per vector.
template <int D>
__global__ void rotate_back_kernel(bf16* out, int vectors) {
  const int index = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (index >= vectors) {
    return;
  }
  bf16* own = out + static_cast<std::size_t>(index) * D;
  HeadVector<D> vector;
  vector.load(own, nullptr);
  vector.rotate_back();
  vector.store(own);
}

}  // namespace

void launch_rotate_back(int head_dim, bf16* out, int vectors, cudaStream_t stream) {
  const int blocks = (vectors + kWarps - 1) / kWarps;
  with_head_dim(head_dim, [&]<int D>() {
    rotate_back_kernel<D><<<blocks, kWarps * 32, 0, stream>>>(out, vectors);
  });
  winnow::cuda::check_launch("rotate outputs of attention back");
}

}  // namespace winnow::ops::cuda
