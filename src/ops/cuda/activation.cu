#include <cuda_bf16.h>

#include "base/cuda/launch.cuh"
#include "ops/cuda/activation.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWide = 8;  // elements per thread: 16 bytes

struct alignas(16) Eight {
  __nv_bfloat162 pairs[kWide / 2];
};

// silu(x) = x / (1 + e^-x). For very negative x the quotient is -0 by way of x / infinity.
__device__ float silu(float x) {
  return __fdividef(x, 1.0F + __expf(-x));
}

__global__ void __launch_bounds__(kThreads)
    silu_multiply_kernel(bf16* out, const bf16* gate_up, int cols, const float* bias) {
  const int col = (blockIdx.y * kThreads + threadIdx.x) * kWide;
  if (col >= cols) {
    return;
  }
  winnow::cuda::wait_for_predecessor();
  const std::size_t row = blockIdx.x;
  const auto gates = *reinterpret_cast<const Eight*>(gate_up + row * 2 * cols + col);
  const auto ups = *reinterpret_cast<const Eight*>(gate_up + (row * 2 + 1) * cols + col);
  Eight result;
#pragma unroll
  for (int i = 0; i < kWide / 2; ++i) {
    float2 gate = __bfloat1622float2(gates.pairs[i]);
    float2 up = __bfloat1622float2(ups.pairs[i]);
    if (bias != nullptr) {
      const float* of_gate = bias + col + 2 * i;
      gate = {gate.x + of_gate[0], gate.y + of_gate[1]};
      up = {up.x + of_gate[cols], up.y + of_gate[cols + 1]};
    }
    result.pairs[i] = __floats2bfloat162_rn(silu(gate.x) * up.x, silu(gate.y) * up.y);
  }
  *reinterpret_cast<Eight*>(out + row * cols + col) = result;
}

// d/dg (g s(g)) = s (1 + g (1 - s)) with s = sigmoid(g).
__global__ void __launch_bounds__(kThreads)
    silu_multiply_backward_kernel(bf16* gate_up, bf16* product, int cols, const float* bias) {
  const int col = (blockIdx.y * kThreads + threadIdx.x) * kWide;
  if (col >= cols) {
    return;
  }
  const std::size_t row = blockIdx.x;
  auto& gates = *reinterpret_cast<Eight*>(gate_up + row * 2 * cols + col);
  auto& ups = *reinterpret_cast<Eight*>(gate_up + (row * 2 + 1) * cols + col);
  auto& products = *reinterpret_cast<Eight*>(product + row * cols + col);
  Eight dgates = gates;
  Eight dups = ups;
  Eight results = products;
#pragma unroll
  for (int i = 0; i < kWide / 2; ++i) {
    float2 gate = __bfloat1622float2(dgates.pairs[i]);
    float2 up = __bfloat1622float2(dups.pairs[i]);
    const float2 dout = __bfloat1622float2(results.pairs[i]);
    if (bias != nullptr) {
      const float* of_gate = bias + col + 2 * i;
      gate = {gate.x + of_gate[0], gate.y + of_gate[1]};
      up = {up.x + of_gate[cols], up.y + of_gate[cols + 1]};
    }
    const float2 share = {__fdividef(1.0F, 1.0F + __expf(-gate.x)),
                          __fdividef(1.0F, 1.0F + __expf(-gate.y))};
    const float2 active = {gate.x * share.x, gate.y * share.y};
    results.pairs[i] = __floats2bfloat162_rn(active.x * up.x, active.y * up.y);
    dups.pairs[i] = __floats2bfloat162_rn(dout.x * active.x, dout.y * active.y);
    dgates.pairs[i] =
        __floats2bfloat162_rn(dout.x * up.x * (share.x + active.x * (1.0F - share.x)),
                              dout.y * up.y * (share.y + active.y * (1.0F - share.y)));
  }
  gates = dgates;
  ups = dups;
  products = results;
}

}  // namespace

void silu_multiply_backward(bf16* gate_up, bf16* product, int rows, int cols, const float* bias,
                            cudaStream_t stream) {
  const dim3 grid(rows, (cols + kThreads * kWide - 1) / (kThreads * kWide));
  silu_multiply_backward_kernel<<<grid, kThreads, 0, stream>>>(gate_up, product, cols, bias);
  winnow::cuda::check_launch("SwiGLU, backward");
}

void silu_multiply(bf16* out, const bf16* gate_up, int rows, int cols, const float* bias,
                   cudaStream_t stream) {
  if (rows > 0) {
    const dim3 grid(rows, (cols + kThreads * kWide - 1) / (kThreads * kWide));
    winnow::cuda::launch(silu_multiply_kernel, grid, kThreads, 0, stream, true, out, gate_up, cols,
                         bias);
  }
}

}  // namespace winnow::ops::cuda
