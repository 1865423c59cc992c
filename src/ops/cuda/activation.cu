#include "ops/cuda/activation.h"

#include "base/cuda/launch.cuh"
#include "ops/cuda/linear/fp8_rows.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWide = 8;  // elements per thread: 16 bytes

// silu(x) = x / (1 + e^-x). For very negative x the quotient is x / infinity, which is -0.
__device__ float silu(float x) {
  return __fdividef(x, 1.0F + __expf(-x));
}

// Gates and ups of eight columns, with their biases.
struct GateUp {
  Eight gates;
  Eight ups;
};

__device__ GateUp load_gate_up(const bf16* gate_up, std::size_t row, int col, int cols,
                               const float* bias) {
  GateUp x{load_eight(gate_up + row * 2 * cols + col),
           load_eight(gate_up + (row * 2 + 1) * cols + col)};
  if (bias != nullptr) {
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      x.gates.values[i] += bias[col + i];
      x.ups.values[i] += bias[cols + col + i];
    }
  }
  return x;
}

__device__ Eight silu_multiplied(const GateUp& x) {
  Eight result;
#pragma unroll
  for (int i = 0; i < kWide; ++i) {
    result.values[i] = silu(x.gates.values[i]) * x.ups.values[i];
  }
  return result;
}

__global__ void __launch_bounds__(kThreads)
    silu_multiply_kernel(bf16* out, const bf16* gate_up, int cols, const float* bias) {
  const int col = (blockIdx.y * kThreads + threadIdx.x) * kWide;
  if (col >= cols) {
    return;
  }
  winnow::cuda::wait_for_predecessor();
  const std::size_t row = blockIdx.x;
  store_eight(out + row * cols + col, silu_multiplied(load_gate_up(gate_up, row, col, cols, bias)));
}

__global__ void __launch_bounds__(kCodeThreads)
    silu_multiply_codes_kernel(Fp8RowsTo out, const bf16* gate_up, int cols, const float* bias) {
  winnow::cuda::wait_for_predecessor();
  write_codes<8>(out, cols, [&](int column) {
    return silu_multiplied(load_gate_up(gate_up, blockIdx.x, column, cols, bias));
  });
}

// d/dg (g s(g)) = s (1 + g (1 - s)) with s = sigmoid(g).
__global__ void __launch_bounds__(kThreads)
    silu_multiply_backward_kernel(bf16* gate_up, bf16* product, int cols, const float* bias) {
  const int col = (blockIdx.y * kThreads + threadIdx.x) * kWide;
  if (col >= cols) {
    return;
  }
  const std::size_t row = blockIdx.x;
  bf16* product_row = product + row * cols + col;
  const GateUp x = load_gate_up(gate_up, row, col, cols, bias);
  const Eight dout = load_eight(product_row);
  Eight dgates;
  Eight dups;
  Eight results;
#pragma unroll
  for (int i = 0; i < kWide; ++i) {
    const float gate = x.gates.values[i];
    const float up = x.ups.values[i];
    const float share = __fdividef(1.0F, 1.0F + __expf(-gate));
    const float active = gate * share;
    results.values[i] = active * up;
    dups.values[i] = dout.values[i] * active;
    dgates.values[i] = dout.values[i] * up * (share + active * (1.0F - share));
  }
  store_eight(gate_up + row * 2 * cols + col, dgates);
  store_eight(gate_up + (row * 2 + 1) * cols + col, dups);
  store_eight(product_row, results);
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

void silu_multiply(const Fp8RowsTo& out, const bf16* gate_up, int rows, int cols, const float* bias,
                   cudaStream_t stream) {
  if (rows > 0) {
    winnow::cuda::launch(silu_multiply_codes_kernel, static_cast<unsigned>(rows), kCodeThreads, 0,
                         stream, true, out, gate_up, cols, bias);
  }
}

}  // namespace winnow::ops::cuda
