#include "base/cuda/launch.cuh"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/eight.cuh"
#include "ops/cuda/general/norm.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;

// A block per row. put(place, values) receives eight neighbouring results at a time.
template <class Number, class Put>
__device__ void normalize(const Number* x, int cols, const NormWeight& weight, float eps,
                          const Put& put) {
  const std::size_t first = std::size_t{blockIdx.x} * cols;
  float squares = 0.0F;
  for (int col = static_cast<int>(threadIdx.x) * 8; col < cols; col += kThreads * 8) {
    const Eight v = load_eight(x + first + col);
#pragma unroll
    for (const float value : v.values) {
      squares += value * value;
    }
  }
  const float factor = rsqrtf(block_sum<kThreads>(squares) / static_cast<float>(cols) + eps);
  for (int col = static_cast<int>(threadIdx.x) * 8; col < cols; col += kThreads * 8) {
    Eight v = load_eight(x + first + col);
    const Eight w = load_eight(weight.weight + col);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      v.values[i] *= factor * (weight.offset + w.values[i]);
    }
    put(first + col, v);
  }
}

template <class Out, class Number>
__global__ void __launch_bounds__(kThreads)
    norm_kernel(Out* out, const Number* x, int cols, NormWeight weight, float eps) {
  winnow::cuda::wait_for_predecessor();
  normalize(x, cols, weight, eps,
            [=](std::size_t at, const Eight& values) { store_eight(out + at, values); });
}

template <class Number>
__global__ void __launch_bounds__(kThreads)
    add_norm_kernel(float* residual, const Number* x, int cols, NormWeight weight, float eps,
                    float factor) {
  winnow::cuda::wait_for_predecessor();
  normalize(x, cols, weight, eps, [=](std::size_t at, const Eight& values) {
    Eight sum = load_eight(residual + at);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      sum.values[i] += factor * values.values[i];
    }
    store_eight(residual + at, sum);
  });
}

template <class Out, class Number>
void run(Out* out, const Number* x, int rows, int cols, const NormWeight& weight, float eps,
         cudaStream_t stream) {
  if (rows > 0) {
    winnow::cuda::launch(norm_kernel<Out, Number>, rows, kThreads, 0, stream, true, out, x, cols,
                         weight, eps);
  }
}

template <class Number>
void run_add(float* residual, const Number* x, int rows, int cols, const NormWeight& weight,
             float eps, float factor, cudaStream_t stream) {
  if (rows > 0) {
    winnow::cuda::launch(add_norm_kernel<Number>, rows, kThreads, 0, stream, true, residual, x,
                         cols, weight, eps, factor);
  }
}

}  // namespace

void rms_norm(bf16* out, const float* x, int rows, int cols, const NormWeight& weight, float eps,
              cudaStream_t stream) {
  run(out, x, rows, cols, weight, eps, stream);
}
void rms_norm(float* out, const float* x, int rows, int cols, const NormWeight& weight, float eps,
              cudaStream_t stream) {
  run(out, x, rows, cols, weight, eps, stream);
}
void rms_norm(bf16* out, const bf16* x, int rows, int cols, const NormWeight& weight, float eps,
              cudaStream_t stream) {
  run(out, x, rows, cols, weight, eps, stream);
}

void add_rms_norm(float* residual, const bf16* x, int rows, int cols, const NormWeight& weight,
                  float eps, float factor, cudaStream_t stream) {
  run_add(residual, x, rows, cols, weight, eps, factor, stream);
}
void add_rms_norm(float* residual, const float* x, int rows, int cols, const NormWeight& weight,
                  float eps, float factor, cudaStream_t stream) {
  run_add(residual, x, rows, cols, weight, eps, factor, stream);
}

}  // namespace winnow::ops::cuda
