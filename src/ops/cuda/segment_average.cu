#include <cuda_bf16.h>

#include <cassert>

#include "base/cuda/device.h"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/general/attention_tile.cuh"
#include "ops/cuda/pages/kv_page.h"
#include "ops/cuda/segment_average.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kWarps = 8;
constexpr unsigned kAll = 0xFFFFFFFFU;

/// A warp's state (or entry) and KV head; the head's rows.
struct Place {
  int token;
  int head;
  std::size_t row;  // in matrices with a column per KV head

  __device__ Place(const SegmentAverage& average)
      : token((blockIdx.x * kWarps + threadIdx.x / kLanes) / average.kv_heads),
        head((blockIdx.x * kWarps + threadIdx.x / kLanes) % average.kv_heads),
        row(std::size_t{blockIdx.x} * kWarps + threadIdx.x / kLanes) {}
};

__device__ float sigmoid(float x) {
  return 1.0F / (1.0F + __expf(-x));
}

/// The weights of a state's entries: lane n is responsible for the entry n tokens before it.
struct Recipe {
  int count;    // entries
  float alpha;  // of this lane's entry
  float omega;
  float product;  // of the alphas after it
  float total;    // of all weights

  __device__ Recipe(const SegmentAverage& average, const Place& place) {
    const int lane = threadIdx.x % kLanes;
    count = min(average.span, place.token - average.first_key[place.token] + 1);
    const bool exists = lane < count;
    const std::size_t row = place.row - (exists ? lane : 0) * std::size_t(average.kv_heads);
    alpha = exists ? average.alphas[row] : 1.0F;
    omega = exists ? sigmoid(average.omega_logits[row]) : 0.0F;
    product = __shfl_up_sync(kAll, alpha, 1);
    product = lane == 0 ? 1.0F : product;
#pragma unroll
    for (int step = 1; step < kLanes; step *= 2) {
      const float before = __shfl_up_sync(kAll, product, step);
      product *= lane >= step ? before : 1.0F;
    }
    total = lane_sum(omega * product);
  }
  [[nodiscard]] __device__ float share() const {
    return omega * product / total;
  }
};

/// One row of a head, spread over the lanes: a lane has channels lane, lane + 32, ...
template <int kPieces>
struct Channels {
  float values[kPieces] = {};

  template <class Body>
  __device__ static void each(int dim, const Body& body) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const int channel = static_cast<int>(threadIdx.x) % kLanes + piece * kLanes;
      if (channel < dim) {
        body(piece, channel);
      }
    }
  }
  __device__ static Channels load(const bf16* from, int dim) {
    Channels result;
    each(dim, [&](int piece, int channel) {
      result.values[piece] = __uint_as_float(unsigned{from[channel].bits} << 16);
    });
    return result;
  }
  __device__ void store(bf16* to, int dim) const {
    each(dim, [&](int piece, int channel) {
      to[channel].bits = __bfloat16_as_ushort(__float2bfloat16_rn(values[piece]));
    });
  }
  __device__ void add(const Channels& other, float factor) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      values[piece] += factor * other.values[piece];
    }
  }
};

/// The key or value of state `place`.
template <int kPieces>
__device__ Channels<kPieces> average_of(const SegmentAverage& average, const Place& place,
                                        const Recipe& recipe, const bf16* rows) {
  Channels<kPieces> sum;
  const std::size_t width = std::size_t(average.kv_heads) * average.head_dim;
  const bf16* newest = rows + place.row * average.head_dim;
  for (int n = 0; n < recipe.count; ++n) {
    sum.add(Channels<kPieces>::load(newest - n * width, average.head_dim),
            __shfl_sync(kAll, recipe.share(), n));
  }
  return sum;
}

template <int kPieces>
__global__ void __launch_bounds__(kWarps* kLanes)
    average_kernel(const __grid_constant__ SegmentAverage average, bf16* keys, bf16* values) {
  const Place place(average);
  if (place.token >= average.rows) {
    return;
  }
  const Recipe recipe(average, place);
  const std::size_t first = place.row * average.head_dim;
  average_of<kPieces>(average, place, recipe, average.keys).store(keys + first, average.head_dim);
  average_of<kPieces>(average, place, recipe, average.values)
      .store(values + first, average.head_dim);
}

/// Gradients that states send back to the entries that they average: [T * kv_heads, kMostMergeSpan]
/// each; column n is for the entry n tokens before. Written per state, gathered per entry.
struct Shares {
  float* means;   // weight / total
  float* omegas;  // d omega
  float* alphas;  // d alpha
};

// With w_j = omega_j prod alpha, d w_j = <d state, entry_j - state> / z; then
// d alpha_l = prod_{m > l} alpha_m * sum_{j < l} d w_j omega_j prod_{j < m < l} alpha_m.
template <int kPieces>
__global__ void __launch_bounds__(kWarps* kLanes)
    share_out_kernel(const __grid_constant__ SegmentAverage average, const bf16* dkeys,
                     const bf16* dvalues, const __grid_constant__ Shares shares) {
  const Place place(average);
  if (place.token >= average.rows) {
    return;
  }
  const Recipe recipe(average, place);
  const int dim = average.head_dim;
  const std::size_t width = std::size_t(average.kv_heads) * dim;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  float dweight = 0.0F;  // of this lane's entry
  const auto add_along = [&](const bf16* rows, const bf16* dstates) {
    const auto state = average_of<kPieces>(average, place, recipe, rows);
    const auto dstate = Channels<kPieces>::load(dstates + place.row * dim, dim);
    for (int n = 0; n < recipe.count; ++n) {
      const auto entry = Channels<kPieces>::load(rows + place.row * dim - n * width, dim);
      float sum = 0.0F;
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        sum += dstate.values[piece] * (entry.values[piece] - state.values[piece]);
      }
      sum = lane_sum(sum);
      dweight += lane == n ? sum / recipe.total : 0.0F;
    }
  };
  add_along(average.keys, dkeys);
  add_along(average.values, dvalues);
  float before = 0.0F;
  float dalpha = 0.0F;
  for (int n = recipe.count - 1; n >= 0; --n) {
    dalpha = lane == n ? recipe.product * before : dalpha;
    before =
        __shfl_sync(kAll, recipe.alpha, n) * before + __shfl_sync(kAll, dweight * recipe.omega, n);
  }
  const std::size_t at = place.row * kMostMergeSpan + lane;
  shares.means[at] = recipe.share();
  shares.omegas[at] = recipe.product * dweight;
  shares.alphas[at] = dalpha;
}

template <int kPieces>
__global__ void __launch_bounds__(kWarps* kLanes)
    gather_kernel(const __grid_constant__ SegmentAverage average, const bf16* dkeys,
                  const bf16* dvalues, const __grid_constant__ Shares shares,
                  const __grid_constant__ SegmentAverageGradients gradients) {
  const Place place(average);
  if (place.token >= average.rows) {
    return;
  }
  const int dim = average.head_dim;
  Channels<kPieces> dkey;
  Channels<kPieces> dvalue;
  float domega = 0.0F;
  float dalpha = 0.0F;
  for (int n = 0; n < average.span && place.token + n < average.rows; ++n) {
    if (average.first_key[place.token + n] > place.token) {
      break;  // another document
    }
    const std::size_t state = place.row + std::size_t(n) * average.kv_heads;
    const std::size_t at = state * kMostMergeSpan + n;
    dkey.add(Channels<kPieces>::load(dkeys + state * dim, dim), shares.means[at]);
    dvalue.add(Channels<kPieces>::load(dvalues + state * dim, dim), shares.means[at]);
    domega += shares.omegas[at];
    dalpha += shares.alphas[at];
  }
  dkey.store(gradients.keys + place.row * dim, dim);
  dvalue.store(gradients.values + place.row * dim, dim);
  if (threadIdx.x % kLanes == 0) {
    const float omega = sigmoid(average.omega_logits[place.row]);
    gradients.omega_logits[place.row] = domega * omega * (1.0F - omega);
    gradients.alphas[place.row] = dalpha;
  }
}

// launch.operator()<kPieces>(blocks).
template <class Launch>
void for_head(const SegmentAverage& average, const Launch& launch) {
  assert(average.head_dim <= kMostHeadDim);  // callers reject wider heads with a proper error
  const int blocks = (average.rows * average.kv_heads + kWarps - 1) / kWarps;
  with_channel_steps(average.head_dim,
                     [&]<int kPieces>() { launch.template operator()<kPieces>(blocks); });
}

}  // namespace

void segment_average(const SegmentAverage& average, bf16* keys, bf16* values, cudaStream_t stream) {
  for_head(average, [&]<int kPieces>(int blocks) {
    average_kernel<kPieces><<<blocks, kWarps * kLanes, 0, stream>>>(average, keys, values);
  });
  winnow::cuda::check_launch("merging");
}

std::size_t segment_average_scratch(int rows, int kv_heads) {
  return std::size_t{3} * rows * kv_heads * kMostMergeSpan;
}

void segment_average_backward(const SegmentAverage& average, const bf16* dkeys, const bf16* dvalues,
                              const SegmentAverageGradients& gradients, float* scratch,
                              cudaStream_t stream) {
  const std::size_t size = segment_average_scratch(average.rows, average.kv_heads) / 3;
  const Shares shares{scratch, scratch + size, scratch + 2 * size};
  for_head(average, [&]<int kPieces>(int blocks) {
    constexpr int kThreads = kWarps * kLanes;
    share_out_kernel<kPieces><<<blocks, kThreads, 0, stream>>>(average, dkeys, dvalues, shares);
    gather_kernel<kPieces>
        <<<blocks, kThreads, 0, stream>>>(average, dkeys, dvalues, shares, gradients);
  });
  winnow::cuda::check_launch("merging, backward");
}

}  // namespace winnow::ops::cuda
