// A warp's attention of one row's queries over tiles of pages, which it reads from shared memory
// or, in 8 and 4 bits, holds in registers. Lane 4 r + c, r < 8 and c < 4, in the products [16, 16]
// x [16, 8]:
//   scores [query head, entry] = queries x keys: the lane reads a quarter (c) of the channels of
//     entries r and r + 8. Channels may be multiplied in any order, so the lane's data is its
//     operand without rearranging.
//   output [query head, channel] = weights x values: the lane reads an eighth (r) of the channels
//     of entries 2c, 2c + 1, 2c + 8 and 2c + 9. Their weights are in the same lane, as the result
//     of the first product.
// Weights are the exponentials of softmax, not yet divided by their sum. They are multiplied by 2
// to the power kWeightExponent, with small scales of values to keep them normal numbers
// (kv_codes.cuh). A group has at most 8 query heads, yet the left operand has 16 rows: rows 8 to 15
// hold the remainders of rounding rows 0 to 7 to 16 bits, at no cost.
#pragma once

#include <cmath>

#include "ops/cuda/decode/warp_page.cuh"

namespace winnow::ops::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

/// Masks of all entries of a page, and of its first `count` entries.
inline constexpr std::uint32_t kWholePage = (1U << kPageEntries) - 1;
inline __device__ std::uint32_t first_entries(int count) {
  return (1U << count) - 1;
}

/// 2^x; zero below 2^-126.
inline __device__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// a and b as 16-bit numbers in `high`, and the rounding remainders in `low`.
template <class Codes>
__device__ void split(float a, float b, std::uint32_t& high, std::uint32_t& low) {
  const auto rounded = Codes::round(a, b);
  const float2 seen = unpack(rounded);
  high = bits_of(rounded);
  low = bits_of(Codes::round(a - seen.x, b - seen.y));
}

/// The position of quad `quad` in a quarter of the channels of query head `head` within a part:
/// [head_dim / 16][group][4].
inline __device__ int part_place(int group, int head, int quarter, int quad) {
  return (quad * group + head) * 4 + quarter;
}

/// The lane's operands in step `step` of the scores, from query [group, D] in shared memory;
/// `scale` includes the factor log2(e).
template <class Codes, int D>
__device__ uint4 query_operand(const float* query, int group, float scale, int step) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int head = lane / 4;
  float4 q{};
  if (head < group) {
    q = reinterpret_cast<const float4*>(query + head * D + lane % 4 * (D / 4))[step];
  }
  uint4 operand;
  split<Codes>(q.x * scale, q.y * scale, operand.x, operand.y);
  split<Codes>(q.z * scale, q.w * scale, operand.z, operand.w);
  return operand;
}

/// Steps of the scores of D channels.
template <int D>
inline constexpr int kQuerySteps = D / 16;

/// The location of a warp's queries: registers, or shared memory with the operands of all lanes,
/// [steps, lanes].
template <class Codes, int D>
class KeptQuery {
 public:
  __device__ void take(const float* query, int group, float scale) {
#pragma unroll
    for (int step = 0; step < kQuerySteps<D>; ++step) {
      operands_[step] = query_operand<Codes, D>(query, group, scale, step);
    }
  }
  [[nodiscard]] __device__ const uint4& operand(int step) const {
    return operands_[step];
  }

 private:
  uint4 operands_[kQuerySteps<D>];
};
class SharedQuery {
 public:
  __device__ void take(const uint4* operands) {
    operands_ = operands + static_cast<int>(threadIdx.x) % kWarpSize;
  }
  [[nodiscard]] __device__ uint4 operand(int step) const { return operands_[step * kWarpSize]; }

 private:
  const uint4* operands_ = nullptr;
};

template <class Codes, int D, int kTilePages, class Query = KeptQuery<Codes, D>>
class WarpAttention {
 public:
  using Shared = SharedPage<Codes, D>;
  using Held = HeldPage<Codes, D>;

  __device__ WarpAttention() : lane_(static_cast<int>(threadIdx.x) % kWarpSize) {}

  /// Starts a row; passes its queries to Query::take().
  template <class... Arguments>
  __device__ void begin(const Arguments&... query) {
    query_.take(query...);
    begin();
  }
  /// The same for a row whose scores are computed elsewhere.
  __device__ void begin() {
#pragma unroll
    for (auto& tile : out_) {
#pragma unroll
      for (float& x : tile) {
        x = 0.0F;
      }
    }
    reference_ = -INFINITY;
    sum_ = 0.0F;
  }

  /// Processes the entries of each page p of a tile (Shared or Held) whose bits are set in seen[p],
  /// at least one in total.
  template <class Page>
  __device__ void attend(const Page (&tile)[kTilePages], const std::uint32_t (&seen)[kTilePages]) {
    float scores[kTilePages][4];
#pragma unroll
    for (int p = 0; p < kTilePages; ++p) {
      score(tile[p], scores[p]);
    }
    attend(tile, seen, scores);
  }
  /// The same with given scores of query head r on entries 2c, 2c + 1, 2c + 8, 2c + 9 of each page.
  template <class Page>
  __device__ void attend(const Page (&tile)[kTilePages], const std::uint32_t (&seen)[kTilePages],
                         float (&scores)[kTilePages][4]) {
    float scales[kTilePages][4];  // of the values
#pragma unroll
    for (int p = 0; p < kTilePages; ++p) {
      ScalePairs pairs;
      tile[p].value_scales(pairs);
      unpack_scales<Codes>(pairs, scales[p]);
    }
    bool full = true;
#pragma unroll
    for (const std::uint32_t bits : seen) {
      full &= bits == kWholePage;
    }
    if (!full) {
#pragma unroll
      for (int p = 0; p < kTilePages; ++p) {
        hide(seen[p], scores[p], scales[p]);
      }
    }
    raise_reference(scores);
#pragma unroll
    for (int p = 0; p < kTilePages; ++p) {
      std::uint32_t weights[4];
      weigh(scores[p], scales[p], weights);
      accumulate(tile[p], weights, seen[p]);
    }
  }

  /// Writes the unnormalised output and, per query head, the reference of its scores and the sum of
  /// exponentials. Groups of four channels ("quads") are placed by part_place(), so that lanes
  /// write contiguously.
  __device__ void write(float4* out, float2* sums, int group) const {
    const float sum = sum_of_head();
    if (lane_ / 4 >= group) {
      return;
    }
#pragma unroll
    for (int quad = 0; quad < kLaneQuads; ++quad) {
      out[part_place(group, lane_ / 4, lane_ % 4, quad)] = channels(quad);
    }
    if (lane_ % 4 == 0) {
      sums[lane_ / 4] = {reference_, sum};
    }
  }

  /// Calls put(quad, channels, sum) for the quads of the unnormalised output [group, D / 4] that
  /// this lane has; `sum` is the head's sum of exponentials.
  template <class Put>
  __device__ void each_quad(int group, const Put& put) const {
    const float sum = sum_of_head();
    if (lane_ / 4 < group) {
#pragma unroll
      for (int quad = 0; quad < kLaneQuads; ++quad) {
        put(lane_ * kLaneQuads + quad, channels(quad), sum);
      }
    }
  }

 private:
  using Words = typename Shared::Words;
  static constexpr int kChannels = D / 8;                   // of the values, per lane
  static constexpr int kLaneQuads = D / 16;                 // of the output, per lane
  static constexpr bool kMayBeNan = kCodeBits<Codes> != 4;  // of the contents of an unused slot
  // How far (in powers of two) a score may exceed the reference of the scores before the reference
  // is raised.
  static constexpr float kSlack = 2.0F;

  template <class Page>
  __device__ void score(const Page& page, float (&scores)[4]) const {
    float products[2][4] = {};
    Words keys;
    page.keys(keys);
#pragma unroll
    for (int step = 0; step < kQuerySteps<D>; ++step) {
      const uint4 q = query_.operand(step);
      const std::uint32_t left[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        multiply<typename Codes::Pair>(products[half], left, Codes::pair(keys[half], 2 * step),
                                       Codes::pair(keys[half], 2 * step + 1));
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scores[2 * half] = products[half][0] + products[half][2];
      scores[2 * half + 1] = products[half][1] + products[half][3];
    }
    float scales[4];
    ScalePairs pairs;
    page.key_scales(pairs);
    unpack_scales<Codes>(pairs, scales);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[i] *= scales[i];
    }
  }

  // Gives unseen entries no weight, whatever their slots contain.
  __device__ void hide(std::uint32_t seen, float (&scores)[4], float (&scales)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int entry = i / 2 * 8 + lane_ % 4 * 2 + i % 2;
      const bool visible = (seen >> entry & 1U) != 0;
      scores[i] = visible ? scores[i] : -INFINITY;
      scales[i] = visible ? scales[i] : 0.0F;
    }
  }

  // Ensures that no score exceeds the reference by more than kSlack.
  __device__ void raise_reference(const float (&scores)[kTilePages][4]) {
    float largest = scores[0][0];
#pragma unroll
    for (const auto& page_scores : scores) {
#pragma unroll
      for (const float score : page_scores) {
        largest = fmaxf(largest, score);
      }
    }
    if (__any_sync(kAllLanes, largest > reference_ + kSlack)) {
      raise(largest);
    }
  }

  // Converts scores to weights, the next product's operand.
  __device__ void weigh(const float (&scores)[4], const float (&scales)[4],
                        std::uint32_t (&weights)[4]) {
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] = exp2_fast(scores[i] - (reference_ - Codes::kWeightExponent));
      sum_ += x[i];
      x[i] *= scales[i];
    }
    split<Codes>(x[0], x[1], weights[0], weights[1]);
    split<Codes>(x[2], x[3], weights[2], weights[3]);
  }

  // Makes the largest score so far the new reference.
  __device__ void raise(float largest) {
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    largest = fmaxf(largest, reference_);
    const float factor = exp2_fast(reference_ - largest);
    reference_ = largest;
    sum_ *= factor;
#pragma unroll
    for (auto& tile : out_) {
#pragma unroll
      for (float& x : tile) {
        x *= factor;
      }
    }
  }

  template <class Page>
  __device__ void accumulate(const Page& page, const std::uint32_t (&weights)[4],
                             std::uint32_t seen) {
    Words values;
    page.values(values);
    if (kMayBeNan && seen != kWholePage) {
      clear(seen, values);
    }
#pragma unroll
    for (int t = 0; t < kChannels; ++t) {
      multiply<typename Codes::Pair>(out_[t], weights, Codes::pair(values[0], t),
                                     Codes::pair(values[1], t));
    }
  }

  // Zeroes unseen values: a weight of zero would not hide a NaN.
  __device__ void clear(std::uint32_t seen, Words& values) const {
    constexpr std::uint32_t kFirst = kCodeBits<Codes> == 8 ? 0x00FF00FFU : 0x0000FFFFU;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t pair = seen >> (8 * half + 2 * (lane_ % 4));
      const std::uint32_t kept =
          ((pair & 1U) != 0 ? kFirst : 0U) | ((pair & 2U) != 0 ? ~kFirst : 0U);
#pragma unroll
      for (std::uint32_t& word : values[half]) {
        word &= kept;
      }
    }
  }

  // The sum of exponentials of the lane's query head, by all lanes of the warp.
  __device__ float sum_of_head() const {
    const float half_sum = sum_ + __shfl_xor_sync(kAllLanes, sum_, 1);
    return half_sum + __shfl_xor_sync(kAllLanes, half_sum, 2);
  }

  // Four channels of the lane's D / 4 of the output.
  __device__ float4 channels(int quad) const {
    return {channel(4 * quad), channel(4 * quad + 1), channel(4 * quad + 2), channel(4 * quad + 3)};
  }

  // Channel i of the lane's D / 4 of the output.
  __device__ float channel(int i) const {
    return i < kChannels ? out_[i][0] + out_[i][2]
                         : out_[i - kChannels][1] + out_[i - kChannels][3];
  }

  int lane_;
  Query query_;
  float out_[kChannels][4];
  float reference_;
  float sum_;
};

}  // namespace winnow::ops::cuda
