// The norm, the router and the routes of a few rows in one kernel. Several blocks share a row's
// experts; the last of them to finish chooses, and the last block of all orders the choices by
// expert. Another mode computes only the norm and the router's logits.
#include <algorithm>

#include "base/cuda/launch.cuh"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/eight.cuh"
#include "ops/cuda/experts/choose_experts.cuh"
#include "ops/cuda/experts/experts.h"
#include "ops/cuda/experts/route_token.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kMostBlocksPerRow = 32;
constexpr int kBlocks = 512;  // of all rows together, approximately

// Normalises the row, rounds it to bf16 and writes it to `shared`; the row's first block stores it.
__device__ void norm_row(const RouterInput& input, bf16* shared, bf16* normed) {
  const float* own = input.hidden + std::size_t{blockIdx.y} * input.cols;
  float squares = 0.0F;
  for (int column = static_cast<int>(threadIdx.x) * 8; column < input.cols;
       column += kThreads * 8) {
    const Eight x = load_eight(own + column);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      squares += x.values[i] * x.values[i];
    }
  }
  const float scale =
      1.0F / sqrtf(block_sum<kThreads>(squares) / static_cast<float>(input.cols) + input.eps);
  for (int column = static_cast<int>(threadIdx.x) * 8; column < input.cols;
       column += kThreads * 8) {
    Eight x = load_eight(own + column);
    const Eight weight = load_eight(input.norm_weight + column);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x.values[i] *= scale * weight.values[i];
    }
    store_eight(shared + column, x);
    if (blockIdx.x == 0) {
      store_eight(normed + std::size_t{blockIdx.y} * input.cols + column, x);
    }
  }
  __syncthreads();
}

// Prefetches the router's weights of this block's first experts; they depend on no other kernel.
__device__ void prefetch_router(const RouterInput& input, int count) {
  constexpr int kLine = 128;
  const int expert = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (expert < count) {
    const auto* row = reinterpret_cast<const std::byte*>(
        input.weight + static_cast<std::size_t>(expert) * input.cols);
    const int bytes = input.cols * static_cast<int>(sizeof(bf16));
    for (int at = static_cast<int>(threadIdx.x) % 32 * kLine; at < bytes; at += 32 * kLine) {
      winnow::cuda::prefetch(row + at);
    }
  }
}

// Computes the logits of this block's experts, one warp each.
__device__ void compute_logits(const RouterInput& input, const bf16* row, float* logits,
                               int count) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  for (int expert = warp; expert < count; expert += static_cast<int>(gridDim.x) * kWarps) {
    const bf16* weight = input.weight + static_cast<std::size_t>(expert) * input.cols;
    float sum = 0.0F;
#pragma unroll 8
    for (int column = lane * 8; column < input.cols; column += 32 * 8) {
      const Eight a = load_eight(weight + column);
      const Eight b = load_eight(row + column);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        sum += a.values[i] * b.values[i];
      }
    }
    sum = lane_sum(sum);
    if (lane == 0) {
      logits[expert] = sum + (input.bias != nullptr ? input.bias[expert] : 0.0F);
    }
  }
}

// Whether this block is the last of `blocks` to arrive; it then sees the others' writes.
__device__ bool is_last(std::uint32_t* arrived, int blocks) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(arrived, 1U) + 1 == static_cast<unsigned>(blocks);
    if (last) {
      *arrived = 0;  // reset for the next call
    }
  }
  __syncthreads();
  __threadfence();
  return last;
}

// The first warp chooses; `shared` [count] is for routers with too many experts for its registers.
__device__ void choose(const Router& router, const RoutesView& routes, const float* logits,
                       float* shared) {
  const std::size_t first = std::size_t{blockIdx.y} * router.active;
  const int lane = static_cast<int>(threadIdx.x);
  if (lane >= kLanes) {
    return;
  }
  if (router.count <= kMostInRegisters && router.active <= kMostChosen) {
    const ChosenExpert chosen = choose_experts(router, logits);
    if (lane < router.active) {
      routes.experts[first + lane] = chosen.expert;
      routes.weights[first + lane] = chosen.weight;
    }
    return;
  }
  for (int e = lane; e < router.count; e += kLanes) {
    shared[e] = __ldcg(logits + e);
  }
  __syncwarp();
  route_token(router, shared, routes.experts + first, routes.weights + first);
}

// Computes places by counting: there are few pairs.
__device__ void order(const Router& router, const RoutesView& routes, int pairs, int* shared) {
  for (int i = static_cast<int>(threadIdx.x); i < pairs; i += kThreads) {
    shared[i] = __ldcg(routes.experts + i);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < pairs; i += kThreads) {
    const int own = shared[i];
    int place = 0;
    for (int j = 0; j < pairs; ++j) {
      place += shared[j] < own || (shared[j] == own && j < i) ? 1 : 0;
    }
    routes.places[i] = place;
    routes.pairs[place] = i;
  }
  for (int e = static_cast<int>(threadIdx.x); e <= router.count; e += kThreads) {
    int begin = 0;
    for (int j = 0; j < pairs; ++j) {
      begin += shared[j] < e ? 1 : 0;
    }
    routes.begins[e] = begin;
  }
}

template <bool kRoutes>
__global__ void __launch_bounds__(kThreads)
    norm_and_route_kernel(Router router, RoutesView routes, RouterInput input, bf16* normed) {
  extern __shared__ uint4 memory[];
  prefetch_router(input, router.count);
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  auto* row = reinterpret_cast<bf16*>(memory);
  float* logits = routes.logits + std::size_t{blockIdx.y} * router.count;
  norm_row(input, row, normed);
  compute_logits(input, row, logits, router.count);
  if (!kRoutes || !is_last(routes.arrived + blockIdx.y, static_cast<int>(gridDim.x))) {
    return;
  }
  choose(router, routes, logits, reinterpret_cast<float*>(memory));
  if (is_last(routes.arrived + kMostRoutedRows, static_cast<int>(gridDim.y))) {
    order(router, routes, static_cast<int>(gridDim.y) * router.active,
          reinterpret_cast<int*>(memory));
  }
}

template <bool kRoutes>
void run(const Router& router, const RoutesView& routes, const RouterInput& input, bf16* normed,
         int rows, cudaStream_t stream) {
  const std::size_t shared = norm_and_route_bytes(router, input.cols);
  const int per_row = std::min(
      {kMostBlocksPerRow, std::max(1, kBlocks / rows), (router.count + kWarps - 1) / kWarps});
  const dim3 grid(static_cast<unsigned>(per_row), static_cast<unsigned>(rows));
  winnow::cuda::launch(norm_and_route_kernel<kRoutes>, grid, kThreads, shared, stream, true, router,
                       routes, input, normed);
}

}  // namespace

void norm_and_route(const Router& router, const RoutesView& routes, const RouterInput& input,
                    bf16* normed, int rows, cudaStream_t stream) {
  run<true>(router, routes, input, normed, rows, stream);
}

void norm_and_score(const Router& router, const RoutesView& routes, const RouterInput& input,
                    bf16* normed, int rows, cudaStream_t stream) {
  run<false>(router, routes, input, normed, rows, stream);
}

}  // namespace winnow::ops::cuda
