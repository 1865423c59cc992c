#include <cuda_bf16.h>

#include "base/cuda/device.h"
#include "base/random.h"
#include "ops/cuda/training/training_decisions.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostDecisions = 1024;  // per token
constexpr float kCertain = 1e4F;      // its sigmoid is 1, and 0 of its negative
constexpr float kNever = -1e30F;      // finite, so that attention never subtracts infinities

/// The difference of two Gumbel samples, equal to ops::sample_decisions' for element `index`.
__device__ float logistic_noise(std::uint64_t seed, int layer, std::size_t index) {
  const std::uint64_t key = mix64(seed ^ mix64(static_cast<std::uint64_t>(layer)));
  const std::uint64_t bits = mix64(key + 0x9E3779B97F4A7C15ULL * (index + 1));
  const double uniform = max(static_cast<double>(bits >> 11) * 0x1p-53, 0x1p-53);
  return static_cast<float>(log(uniform) - log1p(-uniform));
}

__device__ float sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}

/// log(1 - sigmoid(x)).
__device__ float log_one_minus_sigmoid(float x) {
  return -(fmaxf(x, 0.0F) + log1pf(expf(-fabsf(x))));
}

__device__ bool concerns_a_key(const TrainingDecisions& d, int token) {
  return d.first_key[token] + d.shift <= token;
}

__global__ void __launch_bounds__(kThreads)
    take_kernel(const __grid_constant__ TrainingDecisions d,
                const __grid_constant__ DecisionResults out) {
  __shared__ unsigned counts[kMostDecisions];
  for (int i = threadIdx.x; i < d.decisions; i += kThreads) {
    counts[i] = 0;
  }
  __syncthreads();
  const std::size_t index = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index < std::size_t(d.rows) * d.decisions) {
    const int token = static_cast<int>(index / d.decisions);
    const int decision = static_cast<int>(index % d.decisions);
    const float logit = d.scale * d.read[std::size_t(token) * d.stride + decision] - d.offset;
    const int position = token - d.first_key[token];
    const float z = d.pooled > 0 ? (position % d.pooled != 0 ? kCertain : -kCertain)
                    : d.sampled  ? (logit + logistic_noise(*d.noise, d.layer, index)) / d.tau
                                 : logit;
    const float bias = d.sampled ? log_one_minus_sigmoid(z) : (z > 0.0F ? kNever : 0.0F);
    out.logits[index] = logit;
    out.noisy[index] = z;
    const bool shared = d.decisions < d.kv_heads;  // one decides for all heads
    const int last = shared ? d.kv_heads : decision + 1;
    for (int head = decision; head < last; ++head) {
      if (concerns_a_key(d, token)) {
        out.key_bias[std::size_t(token - d.shift) * d.kv_heads + head] = bias;
      }
      if (out.alphas != nullptr) {
        out.alphas[std::size_t(token) * d.kv_heads + head] =
            d.sampled ? sigmoid(z) : (z > 0.0F ? 1.0F : 0.0F);
      }
    }
    if (z > 0.0F) {
      atomicAdd(counts + decision, 1U);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < d.decisions; i += kThreads) {
    if (counts[i] > 0 && out.marked != nullptr) {
      atomicAdd(out.marked + i, static_cast<unsigned long long>(counts[i]));
    }
  }
}

// d log(1 - s)/dz = -s and ds/dz = s (1 - s), with s = sigmoid(z).
__global__ void __launch_bounds__(kThreads)
    take_backward_kernel(const __grid_constant__ TrainingDecisions d,
                         const __grid_constant__ DecisionResults out,
                         const __grid_constant__ DecisionGradients g) {
  const std::size_t index = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= std::size_t(d.rows) * d.decisions) {
    return;
  }
  const int token = static_cast<int>(index / d.decisions);
  const int decision = static_cast<int>(index % d.decisions);
  const bool shared = d.decisions < d.kv_heads;
  const int last = shared ? d.kv_heads : decision + 1;
  float dbias = 0.0F;
  float dalpha = 0.0F;
  for (int head = decision; head < last; ++head) {
    if (concerns_a_key(d, token)) {
      dbias += g.key_bias[std::size_t(token - d.shift) * d.kv_heads + head];
    }
    if (g.alphas != nullptr) {
      dalpha += g.alphas[std::size_t(token) * d.kv_heads + head];
    }
  }
  const DecisionFactors loss = g.loss[decision];
  const float soft = sigmoid(out.noisy[index]);
  const float logit = out.logits[index];
  const float beyond = fmaxf(fabsf(logit) - loss.excess_limit, 0.0F);
  const float dlogit = soft * ((loss.count + dalpha) * (1.0F - soft) - dbias) / d.tau +
                       2.0F * loss.excess * copysignf(beyond, logit);
  g.read[std::size_t(token) * d.kv_heads + decision] = d.scale * dlogit;
  if (g.rounded != nullptr) {
    reinterpret_cast<__nv_bfloat16*>(g.rounded)[std::size_t(token) * g.rounded_stride + decision] =
        __float2bfloat16_rn(d.scale * dlogit);
  }
}

__global__ void __launch_bounds__(kThreads) share_kernel(float* x, int rows, int heads) {
  const int row = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  for (int head = 1; row < rows && head < heads; ++head) {
    x[std::size_t(row) * heads + head] = x[std::size_t(row) * heads];
  }
}

__global__ void __launch_bounds__(kThreads) share_backward_kernel(float* dx, int rows, int heads) {
  const int row = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  for (int head = 1; row < rows && head < heads; ++head) {
    dx[std::size_t(row) * heads] += dx[std::size_t(row) * heads + head];
    dx[std::size_t(row) * heads + head] = 0.0F;
  }
}

int blocks_of(const TrainingDecisions& d) {
  return static_cast<int>((std::size_t(d.rows) * d.decisions + kThreads - 1) / kThreads);
}

}  // namespace

void take_decisions(const TrainingDecisions& decisions, const DecisionResults& results,
                    cudaStream_t stream) {
  const std::size_t keys = std::size_t(decisions.rows) * decisions.kv_heads;
  winnow::cuda::check(cudaMemsetAsync(results.key_bias, 0, keys * sizeof(float), stream), "fill");
  take_kernel<<<blocks_of(decisions), kThreads, 0, stream>>>(decisions, results);
  winnow::cuda::check_launch("decisions");
}

void take_decisions_backward(const TrainingDecisions& decisions, const DecisionResults& results,
                             const DecisionGradients& gradients, cudaStream_t stream) {
  if (gradients.rounded != nullptr) {
    const std::size_t count = std::size_t(decisions.rows) * gradients.rounded_stride;
    winnow::cuda::check(cudaMemsetAsync(gradients.rounded, 0, count * sizeof(bf16), stream),
                        "fill");
  }
  take_backward_kernel<<<blocks_of(decisions), kThreads, 0, stream>>>(decisions, results,
                                                                      gradients);
  winnow::cuda::check_launch("decisions, backward");
}

void share_first_head(float* x, int rows, int heads, cudaStream_t stream) {
  share_kernel<<<(rows + kThreads - 1) / kThreads, kThreads, 0, stream>>>(x, rows, heads);
  winnow::cuda::check_launch("one head for all");
}

void share_first_head_backward(float* dx, int rows, int heads, cudaStream_t stream) {
  share_backward_kernel<<<(rows + kThreads - 1) / kThreads, kThreads, 0, stream>>>(dx, rows, heads);
  winnow::cuda::check_launch("one head for all, backward");
}

}  // namespace winnow::ops::cuda
