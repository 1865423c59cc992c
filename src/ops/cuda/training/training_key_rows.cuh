// Training attention, backward on Hopper: a lane's computations on its two rows of a block of
// scores [64 keys, queries].
#pragma once

#include <numbers>

#include "ops/cuda/training/training_backward_sm90.cuh"

namespace winnow::ops::cuda {

template <class S>
class KeyRows {
 public:
  /// `first` of the 64 keys.
  __device__ KeyRows(const TrainingBackwardSm90& arguments, int kv_head, int first)
      : arguments_(arguments),
        first_key_(first),
        scale_(backward().attention.scale * std::numbers::log2e_v<float>),
        all_see_until_(first < backward().tokens ? arguments.document_end[first] : 0) {
    const Matrix<const float>& bias = backward().attention.bias;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const auto key = static_cast<std::size_t>(key_of(row));
      bias_[row] = key < bias.rows
                       ? bias.data[key * bias.stride + kv_head] * std::numbers::log2e_v<float>
                       : 0.0F;
    }
  }

  __device__ int key_of(int row) const {
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
    return first_key_ + thread / 32 * 16 + thread % 32 / 4 + 8 * row;
  }
  __device__ bool inside(int row) const {
    return key_of(row) < backward().tokens;
  }

  /// Whether all queries of a block see all of the warpgroup's keys, all or none of them within the
  /// window.
  __device__ bool is_plain(int query) const {
    const int window = backward().attention.window;
    const bool all_see = query >= first_key_ + 63 && query + S::kQueries <= all_see_until_;
    const bool far = query - (first_key_ + 63) > window;
    const bool near = query + S::kQueries - 1 - first_key_ <= window;
    return all_see && (far || near);
  }
  /// Converts scores to weights.
  __device__ __forceinline__ void weigh(int query, const QuerySums* sums,
                                        float (&scores)[S::kQueries / 2]) const {
    const float bias[2] = {is_far(query) ? bias_[0] : 0.0F, is_far(query) ? bias_[1] : 0.0F};
    for_columns([&](int i, int column) {
      const float4 pair = *reinterpret_cast<const float4*>(sums + column);
      scores[i] = exp2_of(fmaf(scores[i], scale_, bias[0] - pair.x));
      scores[i + 1] = exp2_of(fmaf(scores[i + 1], scale_, bias[0] - pair.z));
      scores[i + 2] = exp2_of(fmaf(scores[i + 2], scale_, bias[1] - pair.x));
      scores[i + 3] = exp2_of(fmaf(scores[i + 3], scale_, bias[1] - pair.z));
    });
  }
  __device__ __forceinline__ void weigh_masked(int query, const QuerySums* sums,
                                               float (&scores)[S::kQueries / 2]) const {
    const std::uint32_t visible[2] = {seen(0, query), seen(1, query)};
    const std::uint32_t far[2] = {beyond(0, query), beyond(1, query)};
    for_columns([&](int i, int column) {
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        const int row = x / 2;
        const int bit = i / 2 + x % 2;
        const float bias = (far[row] >> bit & 1U) != 0 ? bias_[row] : 0.0F;
        const float weight =
            exp2_of(fmaf(scores[i + x], scale_, bias - sums[column + x % 2].normalizer));
        scores[i + x] = (visible[row] >> bit & 1U) != 0 ? weight : 0.0F;
      }
    });
  }

  /// Converts gradients of weights to those of scores. `weights` are rounded, as in the product
  /// with values, because registers are scarce.
  __device__ __forceinline__ void differentiate(int query, const QuerySums* sums,
                                                const std::uint32_t (&weights)[S::kQueries / 4],
                                                float (&dscores)[S::kQueries / 2]) {
    float sum[4] = {};
    for_columns([&](int i, int column) {
      const float4 pair = *reinterpret_cast<const float4*>(sums + column);
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        dscores[i + x] =
            weight_of(weights, i + x) * (dscores[i + x] - (x % 2 == 0 ? pair.y : pair.w));
        sum[x] += dscores[i + x];
      }
    });
    const bool far = is_far(query);
    dbias_[0] += far ? sum[0] + sum[1] : 0.0F;
    dbias_[1] += far ? sum[2] + sum[3] : 0.0F;
  }
  __device__ __forceinline__ void differentiate_masked(
      int query, const QuerySums* sums, const std::uint32_t (&weights)[S::kQueries / 4],
      float (&dscores)[S::kQueries / 2]) {
    const std::uint32_t far[2] = {beyond(0, query), beyond(1, query)};
    for_columns([&](int i, int column) {
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        dscores[i + x] = weight_of(weights, i + x) * (dscores[i + x] - sums[column + x % 2].dot);
        dbias_[x / 2] += (far[x / 2] >> (i / 2 + x % 2) & 1U) != 0 ? dscores[i + x] : 0.0F;
      }
    });
  }

  /// Writes the gradient of a row's bias, of which each of four lanes has a part.
  __device__ void store_dbias(int row, int kv_head) const {
    float sum = dbias_[row] + __shfl_xor_sync(0xFFFFFFFFU, dbias_[row], 1);
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 2);
    const Matrix<float>& to = backward().gradients.bias;
    const auto key = static_cast<std::size_t>(key_of(row));
    if (key < to.rows && threadIdx.x % 4 == 0) {
      to.data[key * to.stride + kv_head] = sum;
    }
  }

 private:
  __device__ const TrainingBackward& backward() const {
    return arguments_.backward;
  }
  __device__ bool is_far(int query) const {
    return query - (first_key_ + 63) > backward().attention.window;
  }
  // Bit masks of the columns (queries) that see a row's key, and of those beyond the window.
  __device__ std::uint32_t seen(int row, int query) const {
    const int key = key_of(row);
    const int end = key < backward().tokens ? arguments_.document_end[key] : 0;
    return columns_below<S::kQueries>(end - query) & ~columns_below<S::kQueries>(key - query);
  }
  __device__ std::uint32_t beyond(int row, int query) const {
    const int reach = query - key_of(row);  // of the first column; no sum may overflow
    const int window = backward().attention.window;
    return ~columns_below<S::kQueries>(reach > window ? 0 : min(window - reach, S::kQueries) + 1);
  }

  static __device__ __forceinline__ float weight_of(const std::uint32_t (&weights)[S::kQueries / 4],
                                                    int i) {
    const std::uint32_t pair = weights[i / 2];
    return __uint_as_float(i % 2 == 0 ? pair << 16 : pair & 0xFFFF0000U);
  }

  // f(i, column): elements i to i + 3 belong to columns `column` and the next, in both rows.
  template <class F>
  static __device__ __forceinline__ void for_columns(F&& f) {
#pragma unroll
    for (int i = 0; i < S::kQueries / 2; i += 4) {
      f(i, 2 * i + static_cast<int>(threadIdx.x) % 4 * 2);
    }
  }

  const TrainingBackwardSm90& arguments_;
  int first_key_;
  float scale_;        // of scores, in powers of two
  int all_see_until_;  // queries from here on do not see the first key
  float bias_[2];      // in powers of two
  float dbias_[2] = {0.0F, 0.0F};
};

}  // namespace winnow::ops::cuda
