// One head of one token in the registers of neighbouring lanes.
#pragma once

#include <cuda_bf16.h>

#include "base/dtype.h"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/head_transform.cuh"

namespace winnow::ops::cuda {

struct alignas(8) FourHalves {
  __nv_bfloat162 pairs[2];
};

/// A head shared by `Width` neighbouring lanes; beyond a warp, each doubling doubles the channels
/// per lane. Lane l has channels 4 l to 4 l + 3, the next ones follow after those of all lanes; and
/// their partners in the upper half.
template <int Width>
struct HeadLanes {
  static constexpr int kWidth = Width < kLanes ? Width : kLanes;  // lanes
  static constexpr int kOwn = 4 * (Width / kWidth);               // channels of each half

  float low[kOwn] = {};
  float high[kOwn] = {};

  /// The channel of low[i].
  __device__ static int channel(int i) {
    return 4 * (static_cast<int>(threadIdx.x) % kWidth) + i / 4 * 4 * kWidth + i % 4;
  }

  /// body(x, channel) for every value of this lane.
  template <class Body>
  __device__ void for_values(int half, const Body& body) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (channel(i) < half) {
        body(low[i], channel(i));
        body(high[i], channel(i) + half);
      }
    }
  }

  /// body(x, the same value of `other`, channel).
  template <class Body>
  __device__ void for_pairs(HeadLanes& other, int half, const Body& body) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (channel(i) < half) {
        body(low[i], other.low[i], channel(i));
        body(high[i], other.high[i], channel(i) + half);
      }
    }
  }

  __device__ static void load_four(float* x, const bf16* from) {
    const FourHalves four = *reinterpret_cast<const FourHalves*>(from);
    const float2 a = __bfloat1622float2(four.pairs[0]);
    const float2 b = __bfloat1622float2(four.pairs[1]);
    x[0] = a.x;
    x[1] = a.y;
    x[2] = b.x;
    x[3] = b.y;
  }
  __device__ static void store_four(bf16* to, const float* x) {
    *reinterpret_cast<FourHalves*>(to) = {__floats2bfloat162_rn(x[0], x[1]),
                                          __floats2bfloat162_rn(x[2], x[3])};
  }

  __device__ void load(const bf16* from, int half) {
#pragma unroll
    for (int i = 0; i < kOwn; i += 4) {
      if (channel(i) < half) {
        load_four(low + i, from + channel(i));
        load_four(high + i, from + half + channel(i));
      }
    }
  }

  __device__ void store(bf16* to, int half) const {
#pragma unroll
    for (int i = 0; i < kOwn; i += 4) {
      if (channel(i) < half) {
        store_four(to + channel(i), low + i);
        store_four(to + half + channel(i), high + i);
      }
    }
  }

  /// The value of a channel; each lane may request a different one. By all lanes of the warp.
  __device__ float gathered(int wanted, int half) const {
    const int within = wanted % half;
    const int place = within / (4 * kWidth) * 4 + within % 4;
    float own = 0.0F;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int lane = within / 4 % kWidth;
      const float a = __shfl_sync(0xFFFFFFFFU, low[i], lane, kWidth);
      const float b = __shfl_sync(0xFFFFFFFFU, high[i], lane, kWidth);
      if (place == i) {
        own = wanted < half ? a : b;
      }
    }
    return own;
  }

  /// RoPE of whole heads: rotates each pair by its angle, or back.
  __device__ void rotate_all(const float2* angles, int half, float direction) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (channel(i) < half) {
        const float2 angle = angles[channel(i)];
        rotate_plane(low[i], high[i], angle.x, direction * angle.y);
      }
    }
  }

  /// RoPE of only the first `rotary` channels, for heads that rotate. By all lanes of the warp.
  __device__ void rotate_first(const float2* angles, int half, int rotary, float direction,
                               bool rotates) {
    const HeadLanes before = *this;
#pragma unroll
    for (int i = 0; i < 2 * kOwn; ++i) {
      float& x = i < kOwn ? low[i % kOwn] : high[i % kOwn];
      const int own_channel = channel(i % kOwn);
      const int place = own_channel + (i < kOwn ? 0 : half);
      const bool own = rotates && own_channel < half && place < rotary;
      const bool lower = place < rotary / 2;  // of its plane
      const int other = lower ? place + rotary / 2 : place - rotary / 2;
      const float beside = before.gathered(own ? other : 0, half);
      if (own) {
        const float2 angle = angles[lower ? place : other];
        x = x * angle.x + (lower ? -beside : beside) * direction * angle.y;
      }
    }
  }

  /// RoPE of neighbours: pairs each even channel among the first `rotary` with the next.
  __device__ void rotate_neighbours(const float2* angles, int half, int rotary, float direction) {
#pragma unroll
    for (int i = 0; i < 2 * kOwn; i += 2) {
      float* own = i < kOwn ? low : high;
      const int at = i % kOwn;
      const int place = channel(at) + (i < kOwn ? 0 : half);
      if (channel(at) < half && place < rotary) {
        const float2 angle = angles[place / 2];
        rotate_plane(own[at], own[at + 1], angle.x, direction * angle.y);
      }
    }
  }
};

}  // namespace winnow::ops::cuda
