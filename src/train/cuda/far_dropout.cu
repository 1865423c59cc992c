#include "base/cuda/device.h"
#include "train/cuda/far_dropout.h"

namespace winnow::train::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    far_bias_kernel(float* bias, LocalHeads local, const std::uint64_t* seed,
                    const std::int32_t* first_key, int count, int kv_heads) {
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i < count) {
    const bool hidden = local.contains(*seed, first_key[i / kv_heads], i % kv_heads);
    bias[i] = hidden ? kHiddenBias : 0.0F;
  }
}

}  // namespace

void far_bias(float* bias, const LocalHeads& local, const std::uint64_t* seed,
              const std::int32_t* first_key, int rows, int kv_heads, cudaStream_t stream) {
  const int count = rows * kv_heads;
  far_bias_kernel<<<(count + kThreads - 1) / kThreads, kThreads, 0, stream>>>(
      bias, local, seed, first_key, count, kv_heads);
  winnow::cuda::check_launch("far dropout");
}

}  // namespace winnow::train::cuda
