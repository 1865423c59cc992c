// Shared by the general attention kernels: a tile of entries as floats in shared memory, and
// query rows that process one tile after another. Products are sums of floats, without matrix
// instructions, so that any head dimension and any kind of logits is supported.
#pragma once

#include <cmath>
#include <numbers>

#include "ops/cuda/general/attention_logits.h"
#include "ops/cuda/pages/kv_page.h"

namespace winnow::ops::cuda {

/// Entries of a tile: a page's worth. Two lanes share one.
inline constexpr int kEntryTile = kPageEntries;
static_assert(kEntryTile == 16);

/// Lane l holds channels l, l + 32 ... of a row's output, as many as the kernel has steps for.
/// Steps for wide heads need registers, which would slow down every head dimension of a kernel.
inline constexpr int kChannelSteps = 8;
inline constexpr int kWideSteps = kMostHeadDim / 32;

/// f.operator()<kSteps>() for the head dimension.
template <class F>
auto with_channel_steps(int head_dim, const F& f) {
  return head_dim <= 32 * kChannelSteps ? f.template operator()<kChannelSteps>()
                                        : f.template operator()<kWideSteps>();
}

/// Floats from one row of shared memory to the next: a multiple of 32 plus two, so that 16 rows
/// use different banks.
__host__ __device__ constexpr int tile_stride(int head_dim) {
  return (head_dim + 31) / 32 * 32 + 2;
}

/// Rows [kEntryTile][stride] of keys and of values, or of data in their place.
struct EntryTile {
  float* keys;
  float* values;
  int head_dim;

  __device__ EntryTile(float* memory, int head_dim)
      : keys(memory), values(memory + kEntryTile * tile_stride(head_dim)), head_dim(head_dim) {}
  __host__ __device__ static constexpr int floats(int head_dim) {
    return 2 * kEntryTile * tile_stride(head_dim);
  }
  [[nodiscard]] __device__ int stride() const { return tile_stride(head_dim); }
};

/// Computes logits in powers of two.
struct LogitRule {
  float scale;
  float soft_cap;

  __device__ explicit LogitRule(const AttentionLogits& logits)
      : scale(logits.scale), soft_cap(logits.soft_cap) {}

  /// In powers of e.
  [[nodiscard]] __device__ float natural(float product) const {
    const float x = product * scale;
    return soft_cap > 0.0F ? soft_cap * tanhf(x / soft_cap) : x;
  }
  [[nodiscard]] __device__ float operator()(float product) const {
    return natural(product) * std::numbers::log2e_v<float>;
  }
};

/// Over the 16 lanes that hold a tile's entries.
inline __device__ float tile_max(float x) {
  for (int step = kEntryTile / 2; step > 0; step /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, step));
  }
  return x;
}
inline __device__ float tile_sum(float x) {
  for (int step = kEntryTile / 2; step > 0; step /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFFU, x, step);
  }
  return x;
}

/// Products of kRows rows, which are `stride` apart, with the entries of a tile: lanes e and e + 16
/// receive those of entry e.
template <int kRows>
__device__ void multiply_entries(const float* rows, const float* entries, int head_dim,
                                 float (&products)[kRows]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int stride = tile_stride(head_dim);
  const float* entry = entries + lane % kEntryTile * stride;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    products[r] = 0.0F;
  }
  for (int d = lane / kEntryTile * 2; d < head_dim; d += 4) {
    const float2 x = *reinterpret_cast<const float2*>(entry + d);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float2 y = *reinterpret_cast<const float2*>(rows + r * stride + d);
      products[r] += x.x * y.x + x.y * y.y;
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    products[r] += __shfl_xor_sync(0xFFFFFFFFU, products[r], kEntryTile);
  }
}

/// sums[r] += the entries' rows, each times the weight that lane e holds for row r and entry e.
template <int kRows, int kSteps>
__device__ void add_weighted(const float (&weights)[kRows], const float* entries, int head_dim,
                             float (&sums)[kRows][kSteps]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int e = 0; e < kEntryTile; ++e) {
    const float* entry = entries + e * tile_stride(head_dim) + lane;
    float weight[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      weight[r] = __shfl_sync(0xFFFFFFFFU, weights[r], e);
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (32 * i < head_dim) {  // data after the last channel is added up but never read
        const float x = entry[32 * i];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          sums[r][i] += weight[r] * x;
        }
      }
    }
  }
}

/// kRows query rows of a warp, with the running softmax over the entries seen so far.
template <int kRows, int kSteps = kChannelSteps>
struct SoftmaxOutputs {
  float largest[kRows];  // logit, in powers of two; -infinity: nothing yet
  float sum[kRows] = {};
  float out[kRows][kSteps] = {};

  __device__ SoftmaxOutputs() {
#pragma unroll
    for (float& x : largest) {
      x = -INFINITY;
    }
  }

  /// Processes a tile, by all lanes of a warp. queries [kRows][stride]; logit(row, entry, product)
  /// is -infinity if the row does not see the entry, whose value must be finite nonetheless.
  template <class Logit>
  __device__ void take(const float* queries, const EntryTile& tile, const Logit& logit) {
    const int entry = static_cast<int>(threadIdx.x) % kEntryTile;
    float weights[kRows];
    multiply_entries(queries, tile.keys, tile.head_dim, weights);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float x = logit(r, entry, weights[r]);
      const float most = fmaxf(largest[r], tile_max(x));
      rescale(r, most);
      weights[r] = x == -INFINITY ? 0.0F : exp2f(x - most);
      sum[r] += tile_sum(weights[r]);
    }
    add_weighted(weights, tile.values, tile.head_dim, out);
  }

  /// Adds a logit without a value, a sink (in powers of two).
  __device__ void take_sink(int r, float logit) {
    rescale(r, fmaxf(largest[r], logit));
    sum[r] += exp2f(logit - largest[r]);
  }

  /// The factor for the output; for rows that have seen nothing it is zero.
  [[nodiscard]] __device__ float inverse_sum(int r) const {
    return sum[r] == 0.0F ? 0.0F : 1.0F / sum[r];
  }
  /// Log-sum-exp of the logits, in powers of e.
  [[nodiscard]] __device__ float normalizer(int r) const {
    return largest[r] * std::numbers::ln2_v<float> + logf(sum[r]);
  }

 private:
  // A NaN in the sum remains after any multiplication.
  __device__ void rescale(int r, float most) {
    const float factor = largest[r] == -INFINITY ? 0.0F : exp2f(largest[r] - most);
    largest[r] = most;
    sum[r] *= factor;
#pragma unroll
    for (float& x : out[r]) {
      x *= factor;
    }
  }
};

}  // namespace winnow::ops::cuda
