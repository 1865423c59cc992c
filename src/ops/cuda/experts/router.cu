#include "base/cuda/launch.cuh"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/eight.cuh"
#include "ops/cuda/experts/experts.h"
#include "ops/cuda/experts/route_token.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kRouteWarps = 4;
constexpr int kSortThreads = 1024;
constexpr int kAddThreads = 128;
constexpr int kStreamThreads = 32;

// Logits, and scratch for choices that depend on more than the logits.
constexpr int floats_per_row(const Router& router) {
  return router.count + (router.goes_by_logits() ? 0 : router.count + router.groups);
}

__global__ void __launch_bounds__(32 * kRouteWarps)
    route_kernel(Router router, RoutesView routes, const float* logits, int stride,
                 const float* bias, int rows) {
  extern __shared__ float shared_logits[];
  winnow::cuda::wait_for_predecessor();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = static_cast<int>(blockIdx.x) * kRouteWarps + warp;
  if (row >= rows) {
    return;
  }
  float* own = shared_logits + warp * floats_per_row(router);
  for (int e = static_cast<int>(threadIdx.x) % 32; e < router.count; e += 32) {
    own[e] = logits[std::size_t{static_cast<unsigned>(row)} * stride + e] +
             (bias != nullptr ? bias[e] : 0.0F);
  }
  __syncwarp();
  const std::size_t first = std::size_t{static_cast<unsigned>(row)} * router.active;
  if (router.goes_by_logits()) {
    route_token(router, own, routes.experts + first, routes.weights + first);
  } else if (router.score == RouterScore::sparse_mixer) {
    route_token_by_turns(router, own, routes.experts + first, routes.weights + first);
  } else {
    route_token_by_choice(router, own, own + router.count, routes.experts + first,
                          routes.weights + first);
  }
}

// Four pairs' experts, from `first` on, a multiple of 4; kNoExpert after the last pair.
constexpr int kNoExpert = 1 << 30;
__device__ int4 load_experts(const RoutesView& routes, int first, int count) {
  if (first + 3 < count) {
    return *reinterpret_cast<const int4*>(routes.experts + first);
  }
  const auto at = [&](int i) { return i < count ? routes.experts[i] : kNoExpert; };
  return {at(first), at(first + 1), at(first + 2), at(first + 3)};
}

// A block per expert: it finds its own pairs in order, and its first place. Each warp has a part of
// the pairs, of which it reads 128 at a time.
__global__ void __launch_bounds__(kSortThreads) sort_kernel(RoutesView routes, int count) {
  constexpr int kWarps = kSortThreads / 32;
  constexpr int kPairs = 128;
  __shared__ int before_of_warps[kWarps];  // pairs of earlier experts
  __shared__ int own_of_warps[kWarps];
  winnow::cuda::wait_for_predecessor();
  const int own = static_cast<int>(blockIdx.x);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int part = (count + kWarps * kPairs - 1) / (kWarps * kPairs) * kPairs;
  const int begin = warp * part + 4 * lane;
  const int end = min(count, (warp + 1) * part);
  int before = 0;
  int owned = 0;
#pragma unroll 4
  for (int first = begin; first < end; first += kPairs) {
    const int4 four = load_experts(routes, first, count);
    for (const int expert : {four.x, four.y, four.z, four.w}) {
      before += expert < own ? 1 : 0;
      owned += expert == own ? 1 : 0;
    }
  }
  before = __reduce_add_sync(~0U, before);
  owned = __reduce_add_sync(~0U, owned);
  if (lane == 0) {
    before_of_warps[warp] = before;
    own_of_warps[warp] = owned;
  }
  __syncthreads();
  int next = 0;  // the place of the warp's next pair
  for (int w = 0; w < kWarps; ++w) {
    next += before_of_warps[w];
  }
  if (threadIdx.x == 0) {
    routes.begins[own] = next;
    if (own + 1 == static_cast<int>(gridDim.x)) {
      routes.begins[own + 1] = count;
    }
  }
  for (int w = 0; w < warp; ++w) {
    next += own_of_warps[w];
  }
  const unsigned lower = (1U << lane) - 1;
  for (int first = begin; first - 4 * lane < end && owned > 0; first += kPairs) {
    const int4 four = load_experts(routes, first, end);
    const int experts[4] = {four.x, four.y, four.z, four.w};
    int place = next;
    unsigned votes[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      votes[i] = __ballot_sync(~0U, experts[i] == own);
      place += __popc(votes[i] & lower);
      next += __popc(votes[i]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (experts[i] == own) {
        routes.pairs[place] = first + i;
        routes.places[first + i] = place;
        ++place;
      }
    }
  }
}

// Adds the rows of y that belong to a block's token to eight of its columns.
__device__ void add_outputs(Eight& sum, const bf16* y, const RoutesView& routes, int active,
                            bool weighted, int cols) {
  const std::size_t first = std::size_t{blockIdx.x} * active;
#pragma unroll 4
  for (int k = 0; k < active; ++k) {
    const std::size_t place = static_cast<unsigned>(routes.places[first + k]);
    const float weight = weighted ? routes.weights[first + k] : 1.0F;
    const Eight part = load_eight(y + place * cols);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      sum.values[i] = fmaf(weight, part.values[i], sum.values[i]);
    }
  }
}

// A block per token.
__global__ void __launch_bounds__(kAddThreads)
    add_outputs_kernel(float* out, const bf16* y, RoutesView routes, int active, bool weighted,
                       int cols) {
  winnow::cuda::wait_for_predecessor();
  for (int column = static_cast<int>(threadIdx.x) * 8; column < cols; column += kAddThreads * 8) {
    float* own = out + std::size_t{blockIdx.x} * cols + column;
    Eight sum = load_eight(own);
    add_outputs(sum, y + column, routes, active, weighted, cols);
    store_eight(own, sum);
  }
}

// A block per token.
__global__ void __launch_bounds__(kAddThreads)
    sum_outputs_kernel(bf16* out, const bf16* y, RoutesView routes, int active, bool weighted,
                       int cols) {
  winnow::cuda::wait_for_predecessor();
  for (int column = static_cast<int>(threadIdx.x) * 8; column < cols; column += kAddThreads * 8) {
    Eight sum;
    add_outputs(sum, y + column, routes, active, weighted, cols);
    store_eight(out + std::size_t{blockIdx.x} * cols + column, sum);
  }
}

// In the same order as lane_sum() over eight lanes.
__device__ float sum_of_squares(const Eight& x) {
  float squares[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    squares[i] = __fmul_rn(x.values[i], x.values[i]);
  }
#pragma unroll
  for (int step = 4; step > 0; step /= 2) {
#pragma unroll
    for (int i = 0; i < step; ++i) {
      squares[i] += squares[i + step];
    }
  }
  return squares[0];
}

// Eight columns per thread, a row of blocks per token; `residual` is the stream, and the input of
// the next layer.
__global__ void __launch_bounds__(kStreamThreads)
    add_outputs_and_norm_kernel(ResidualStream residual, const bf16* y, RoutesView routes,
                                int active, bool weighted, int cols) {
  const int column = 8 * static_cast<int>(blockIdx.y * kStreamThreads + threadIdx.x);
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const std::size_t first = std::size_t{blockIdx.x} * cols;
  float squares = 0.0F;
  if (column < cols) {
    Eight sum = load_eight(residual.hidden + first + column);
    add_outputs(sum, y + column, routes, active, weighted, cols);
    store_eight(residual.hidden + first + column, sum);
    const Eight weight = load_eight(residual.norm_weight + column);
    Eight normed;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      normed.values[i] = sum.values[i] * weight.values[i];
    }
    store_eight(residual.normed + first + column, normed);
    squares = sum_of_squares(sum);
  }
  squares = lane_sum<2>(squares);
  if (column < cols && column % kTileRows == 0) {
    residual.square_sums[column / kTileRows * gridDim.x + blockIdx.x] = squares;
  }
}

// A block per row.
__global__ void __launch_bounds__(kAddThreads)
    add_gated_kernel(float* out, const float* y, const bf16* x, const float* gate, int cols) {
  winnow::cuda::wait_for_predecessor();
  const std::size_t first = std::size_t{blockIdx.x} * cols;
  float factor = 1.0F;
  if (gate != nullptr) {
    float product = 0.0F;
    for (int column = static_cast<int>(threadIdx.x) * 8; column < cols; column += kAddThreads * 8) {
      const Eight a = load_eight(x + first + column);
      const Eight b = load_eight(gate + column);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        product += a.values[i] * b.values[i];
      }
    }
    factor = sigmoid(block_sum<kAddThreads>(product));
  }
  for (int column = static_cast<int>(threadIdx.x) * 8; column < cols; column += kAddThreads * 8) {
    Eight sum = load_eight(out + first + column);
    const Eight part = load_eight(y + first + column);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      sum.values[i] += factor * part.values[i];
    }
    store_eight(out + first + column, sum);
  }
}

}  // namespace

void route(const Router& router, const RoutesView& routes, const float* logits, int stride,
           const float* bias, int rows, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((rows + kRouteWarps - 1) / kRouteWarps);
  const std::size_t shared =
      kRouteWarps * static_cast<std::size_t>(floats_per_row(router)) * sizeof(float);
  winnow::cuda::launch(route_kernel, blocks, 32 * kRouteWarps, shared, stream, true, router, routes,
                       logits, stride, bias, rows);
  winnow::cuda::launch(sort_kernel, static_cast<unsigned>(router.count), kSortThreads, 0, stream,
                       true, routes, rows * router.active);
}

void add_expert_outputs(const Router& router, float* out, const bf16* y, const RoutesView& routes,
                        bool weighted, int rows, int cols, cudaStream_t stream) {
  winnow::cuda::launch(add_outputs_kernel, static_cast<unsigned>(rows), kAddThreads, 0, stream,
                       true, out, y, routes, router.active, weighted, cols);
}

void sum_expert_outputs(const Router& router, bf16* out, const bf16* y, const RoutesView& routes,
                        bool weighted, int rows, int cols, cudaStream_t stream) {
  winnow::cuda::launch(sum_outputs_kernel, static_cast<unsigned>(rows), kAddThreads, 0, stream,
                       true, out, y, routes, router.active, weighted, cols);
}

void add_expert_outputs(const Router& router, const ResidualStream& residual, const bf16* y,
                        const RoutesView& routes, bool weighted, int rows, int cols,
                        cudaStream_t stream) {
  constexpr int kColumns = 8 * kStreamThreads;  // per block
  const dim3 grid(static_cast<unsigned>(rows),
                  static_cast<unsigned>((cols + kColumns - 1) / kColumns));
  winnow::cuda::launch(add_outputs_and_norm_kernel, grid, kStreamThreads, 0, stream, true, residual,
                       y, routes, router.active, weighted, cols);
}

void add_gated(float* out, const float* y, const bf16* x, const float* gate, int rows, int cols,
               cudaStream_t stream) {
  winnow::cuda::launch(add_gated_kernel, static_cast<unsigned>(rows), kAddThreads, 0, stream, true,
                       out, y, x, gate, cols);
}

}  // namespace winnow::ops::cuda
