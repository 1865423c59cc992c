#include "ops/cuda/training/training_experts.h"

#include "base/cuda/launch.cuh"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/eight.cuh"
#include "ops/cuda/general/activation_curves.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kRowThreads = 128;
constexpr int kRowStep = 8 * kRowThreads;  // columns that a block processes at a time
constexpr int kTokenWarps = 4;

__device__ std::size_t own_row(int cols) {
  return std::size_t{blockIdx.x} * cols;
}
__device__ int first_column() {
  return static_cast<int>(threadIdx.x) * 8;
}

// The dot product of two rows, returned to each thread of the block.
template <class T>
__device__ float row_product(const bf16* x, const T* y, int cols) {
  float sum = 0.0F;
  for (int column = first_column(); column < cols; column += kRowStep) {
    const Eight a = load_eight(x + column);
    const Eight b = load_eight(y + column);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      sum += a.values[i] * b.values[i];
    }
  }
  return block_sum<kRowThreads>(sum);
}

__device__ void scale_row(bf16* out, const bf16* x, float factor, int cols) {
  for (int column = first_column(); column < cols; column += kRowStep) {
    Eight row = load_eight(x + column);
#pragma unroll
    for (float& value : row.values) {
      value *= factor;
    }
    store_eight(out + column, row);
  }
}

// A block per place.
__global__ void __launch_bounds__(kRowThreads)
    gather_kernel(bf16* out, const bf16* x, RoutesView routes, int active, bool weighted,
                  int cols) {
  winnow::cuda::wait_for_predecessor();
  const int pair = routes.pairs[blockIdx.x];
  scale_row(out + own_row(cols), x + std::size_t(pair / active) * cols,
            weighted ? routes.weights[pair] : 1.0F, cols);
}

__global__ void __launch_bounds__(kRowThreads)
    row_products_kernel(float* products, const bf16* x, const bf16* y, RoutesView routes,
                        int cols) {
  winnow::cuda::wait_for_predecessor();
  const float product = row_product(x + own_row(cols), y + own_row(cols), cols);
  if (threadIdx.x == 0) {
    products[routes.pairs[blockIdx.x]] = product;
  }
}

__global__ void __launch_bounds__(kRowThreads)
    bias_products_kernel(float* products, const bf16* dy, ExpertMatrices<const bf16> matrices,
                         RoutesView routes) {
  winnow::cuda::wait_for_predecessor();
  const int pair = routes.pairs[blockIdx.x];
  const float* bias = matrices.bias + routes.experts[pair] * matrices.bias_stride;
  const float product = row_product(dy + own_row(matrices.outputs), bias, matrices.outputs);
  if (threadIdx.x == 0) {
    products[pair] += product;
  }
}

// Over all of `count` experts, by a warp.
template <class Of>
__device__ float largest_of(int count, const Of& of) {
  float largest = -INFINITY;
  for (int e = static_cast<int>(threadIdx.x) % kLanes; e < count; e += kLanes) {
    largest = fmaxf(largest, of(e));
  }
  for (int step = kLanes / 2; step > 0; step /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, step));
  }
  return largest;
}
template <class Of>
__device__ float sum_of(int count, const Of& of) {
  float sum = 0.0F;
  for (int e = static_cast<int>(threadIdx.x) % kLanes; e < count; e += kLanes) {
    sum += of(e);
  }
  return lane_sum(sum);
}

// sparse_mixer: the gradient of logit e of a token, whose products of weights and gradients are
// `weighted`.
template <class Logit>
__device__ float mixed_gradient(const Router& router, const std::int32_t* experts,
                                const float* weights, const float* weighted, const Logit& logit,
                                int e) {
  float gradient = 0.0F;
  bool taken = false;
  for (int k = 0; k < router.active && !taken; ++k) {
    const float best = logit(experts[k]);
    const float share = router.is_near(logit(e), best) ? expf(logit(e) - best) * weights[k] : 0.0F;
    taken = experts[k] == e;
    gradient += weighted[k] * ((taken ? 1.0F : 0.0F) - share);
  }
  return gradient;
}

// A warp per token (ops/cpu/experts/router.cc).
__global__ void __launch_bounds__(32 * kTokenWarps)
    route_backward_kernel(Router router, RoutesView routes, bf16* dlogits, const float* products,
                          const float* logits, const float* bias, int stride, int rows) {
  winnow::cuda::wait_for_predecessor();
  const int row = static_cast<int>(blockIdx.x) * kTokenWarps + static_cast<int>(threadIdx.x) / 32;
  if (row >= rows) {
    return;
  }
  const std::size_t first_pair = std::size_t(row) * router.active;
  const std::int32_t* experts = routes.experts + first_pair;
  const float* weighted = products + first_pair;
  const float* own_logits = logits + std::size_t(row) * stride;
  const auto logit = [&](int e) { return own_logits[e] + (bias != nullptr ? bias[e] : 0.0F); };
  // Weights without expert_scale, which may be 0: they are recomputed from the logits.
  const float largest = largest_of(router.count, logit);
  const auto score = [&](int e) {
    return router.score == RouterScore::sigmoid ? sigmoid(logit(e)) : expf(logit(e) - largest);
  };
  float sum = 0.0F;
  float chosen = 0.0F;
  for (int k = 0; k < router.active; ++k) {
    sum += weighted[k];
    chosen += score(experts[k]);
  }
  const bool divides = router.normalized || router.score == RouterScore::softmax_of_chosen;
  const bool of_all = router.score == RouterScore::softmax && !router.normalized;
  const float divisor = of_all ? sum_of(router.count, score) : chosen;
  for (int e = static_cast<int>(threadIdx.x) % 32; e < stride; e += 32) {
    float gradient = 0.0F;
    if (router.score == RouterScore::sparse_mixer) {
      gradient = e < router.count ? mixed_gradient(router, experts, routes.weights + first_pair,
                                                   weighted, logit, e)
                                  : 0.0F;
    } else if (e < router.count) {
      // The other experts' logits also contribute to the denominator.
      gradient = of_all ? -score(e) / divisor * sum : 0.0F;
      for (int k = 0; k < router.active; ++k) {
        if (experts[k] == e) {
          const float slope =
              router.score == RouterScore::sigmoid ? 1.0F - sigmoid(logit(e)) : 1.0F;
          gradient += (weighted[k] - (divides ? score(e) / divisor * sum : 0.0F)) * slope;
        }
      }
    }
    dlogits[std::size_t(row) * stride + e] = to_bf16(gradient);
  }
}

// In the following kernels a block has one row.
__global__ void __launch_bounds__(kRowThreads)
    row_logits_kernel(float* logits, const bf16* x, const bf16* gate, int cols) {
  winnow::cuda::wait_for_predecessor();
  const float product = row_product(x + own_row(cols), gate, cols);
  if (threadIdx.x == 0) {
    logits[blockIdx.x] = product;
  }
}

__global__ void __launch_bounds__(kRowThreads)
    gate_rows_kernel(bf16* x, const float* logits, int cols) {
  winnow::cuda::wait_for_predecessor();
  bf16* row = x + own_row(cols);
  scale_row(row, row, sigmoid(logits[blockIdx.x]), cols);
}

__global__ void __launch_bounds__(kRowThreads)
    gate_rows_backward_kernel(bf16* dlogits, int stride, bf16* dout, const bf16* x,
                              const float* logits, int cols) {
  winnow::cuda::wait_for_predecessor();
  bf16* row = dout + own_row(cols);
  const float gate = sigmoid(logits[blockIdx.x]);
  const float product = row_product(x + own_row(cols), row, cols);
  for (int i = static_cast<int>(threadIdx.x); i < stride; i += kRowThreads) {
    dlogits[own_row(stride) + i] = to_bf16(i == 0 ? product * (1.0F - gate) : 0.0F);
  }
  scale_row(row, row, gate, cols);
}

__global__ void __launch_bounds__(kRowThreads)
    row_logits_gradient_kernel(bf16* dx, const bf16* dlogits, int stride, const bf16* gate,
                               int cols) {
  winnow::cuda::wait_for_predecessor();
  const float dlogit = to_float(dlogits[own_row(stride)]);
  bf16* row = dx + own_row(cols);
  for (int column = first_column(); column < cols; column += kRowStep) {
    Eight sum = load_eight(row + column);
    const Eight of_gate = load_eight(gate + column);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      sum.values[i] += dlogit * of_gate.values[i];
    }
    store_eight(row + column, sum);
  }
}

template <class... Parameters, class... Arguments>
void launch_rows(void (*kernel)(Parameters...), int rows, cudaStream_t stream,
                 const Arguments&... arguments) {
  winnow::cuda::launch(kernel, static_cast<unsigned>(rows), kRowThreads, 0, stream, true,
                       arguments...);
}

}  // namespace

void gather_expert_rows(const RoutedTokens& tokens, bf16* out, const bf16* x, bool weighted,
                        int cols, cudaStream_t stream) {
  launch_rows(gather_kernel, tokens.places(), stream, out, x, tokens.routes, tokens.router.active,
              weighted, cols);
}

void expert_row_products(const RoutedTokens& tokens, float* products, const bf16* x, const bf16* y,
                         int cols, cudaStream_t stream) {
  launch_rows(row_products_kernel, tokens.places(), stream, products, x, y, tokens.routes, cols);
}

void add_expert_bias_products(const RoutedTokens& tokens, float* products, const bf16* dy,
                              const ExpertMatrices<const bf16>& matrices, cudaStream_t stream) {
  if (matrices.bias != nullptr) {
    launch_rows(bias_products_kernel, tokens.places(), stream, products, dy, matrices,
                tokens.routes);
  }
}

void route_backward(const RoutedTokens& tokens, bf16* dlogits, const float* products,
                    const float* logits, const float* bias, int stride, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((tokens.rows + kTokenWarps - 1) / kTokenWarps);
  winnow::cuda::launch(route_backward_kernel, blocks, 32 * kTokenWarps, 0, stream, true,
                       tokens.router, tokens.routes, dlogits, products, logits, bias, stride,
                       tokens.rows);
}

void row_logits(float* logits, const bf16* x, const bf16* gate, int rows, int cols,
                cudaStream_t stream) {
  launch_rows(row_logits_kernel, rows, stream, logits, x, gate, cols);
}

void gate_rows(bf16* x, const float* logits, int rows, int cols, cudaStream_t stream) {
  launch_rows(gate_rows_kernel, rows, stream, x, logits, cols);
}

void gate_rows_backward(bf16* dlogits, int stride, bf16* dout, const bf16* x, const float* logits,
                        int rows, int cols, cudaStream_t stream) {
  launch_rows(gate_rows_backward_kernel, rows, stream, dlogits, stride, dout, x, logits, cols);
}

void add_row_logits_gradient(bf16* dx, const bf16* dlogits, int stride, const bf16* gate, int rows,
                             int cols, cudaStream_t stream) {
  launch_rows(row_logits_gradient_kernel, rows, stream, dx, dlogits, stride, gate, cols);
}

}  // namespace winnow::ops::cuda
