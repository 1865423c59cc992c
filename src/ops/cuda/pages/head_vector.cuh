// A query, key or value of one head, held by a warp.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>

#include "base/dtype.h"
#include "ops/cuda/head_transform.cuh"
#include "ops/cuda/pages/entry_codes.cuh"
#include "ops/cuda/pages/head_dim.cuh"
#include "ops/cuda/pages/kv_page.h"
#include "ops/rotation.h"

namespace winnow::ops::cuda {

/// Lane l holds pairs l, l + 32 ... of the rotation: pair p is channels p and p + D / 2. D is
/// the head dimension, or 0 if it is known only at run time: then any that
/// DevicePageLayout accepts.
template <int D>
class HeadVector {
 public:
  static constexpr int kPlanes = ((D > 0 ? D : kMostHeadDim) / 2 + 31) / 32;

  __device__ explicit HeadVector(HeadDim<D> dim = {}) : dim_(dim), width_(dim) {}
  /// For a head with `width` channels, padded with zeros.
  __device__ HeadVector(HeadDim<D> dim, HeadDim<D> width) : dim_(dim), width_(width) {}
  [[nodiscard]] __device__ HeadDim<D> dim() const { return dim_; }

  /// `from`: the head's channels, by index.
  template <class From>
  __device__ void load(const From& from, const float* bias) {
    const auto channel = [&](int c) {
      return has(c) ? to_float(from[c]) + (bias != nullptr ? bias[c] : 0.0F) : 0.0F;
    };
    each([&](int i, int plane) {
      low_[i] = channel(plane);
      high_[i] = channel(plane + half());
    });
  }

  /// Subtracts the mean of the head's channels: LayerNorm is center(), then norm().
  __device__ void center() {
    float own = 0.0F;
    each([&](int i, int) { own += low_[i] + high_[i]; });
    const float mean = sum(own) / static_cast<float>(width_);
    each([&](int i, int plane) {
      low_[i] -= has(plane) ? mean : 0.0F;
      high_[i] -= has(plane + half()) ? mean : 0.0F;
    });
  }

  /// RMSNorm over the head's channels.
  __device__ void norm(const float* weight, float eps) {
    float squares = 0.0F;
    each([&](int i, int) { squares += low_[i] * low_[i] + high_[i] * high_[i]; });
    const float factor = inverse_rms(sum(squares), width_, eps);
    each([&](int i, int plane) {
      low_[i] *= has(plane) ? factor * weight[plane] : 0.0F;
      high_[i] *= has(plane + half()) ? factor * weight[plane + half()] : 0.0F;
    });
  }

  /// The value of one channel, in all lanes.
  __device__ float channel(int channel) const {
    const int plane = channel % half();
    float own = 0.0F;
    each([&](int i, int p) {
      if (p == plane) {
        own = channel < half() ? low_[i] : high_[i];
      }
    });
    return __shfl_sync(0xFFFFFFFFU, own, plane % 32);
  }

  __device__ void scale(float factor) {
    each([&](int i, int) {
      low_[i] *= factor;
      high_[i] *= factor;
    });
  }

  __device__ void clear(int channel) {
    each([&](int i, int plane) {
      low_[i] = plane == channel ? 0.0F : low_[i];
      high_[i] = plane + half() == channel ? 0.0F : high_[i];
    });
  }

  /// DMC's running average: before + share * (this - before) per channel, with the same operations
  /// as on the host, to the bit.
  __device__ void mix(const HeadVector& before, float share) {
    const auto moved = [share](float from, float to) {
      return __fadd_rn(from, __fmul_rn(__fsub_rn(to, from), share));
    };
    each([&](int i, int) {
      low_[i] = moved(before.low_[i], low_[i]);
      high_[i] = moved(before.high_[i], high_[i]);
    });
  }

  /// The product with `other` [D], in all lanes.
  __device__ float dot(const float* other) const {
    float product = 0.0F;
    each([&](int i, int plane) {
      product += low_[i] * other[plane] + high_[i] * other[plane + half()];
    });
    return sum(product);
  }

  /// The sum of the channels' sizes, in all lanes.
  __device__ float l1_norm() const {
    float own = 0.0F;
    each([&](int i, int) { own += fabsf(low_[i]) + fabsf(high_[i]); });
    return sum(own);
  }

  /// RoPE: rotates every pair by its angle, cosine and sine [D / 2].
  __device__ void apply_rope(const float2* angles) {
    each([&](int i, int plane) {
      const float2 angle = angles[plane];
      rotate_plane(low_[i], high_[i], angle.x, angle.y);
    });
  }

  /// Rotates the pairs of the first `rotary` channels, i and i + rotary / 2, by angle i; the other
  /// channels do not change. By all lanes of the warp.
  __device__ void rotate_first(const float2* angles, int rotary) {
    const HeadVector before = *this;
#pragma unroll
    for (int i = 0; i < kPlanes; ++i) {
      const int plane = static_cast<int>(threadIdx.x) % 32 + 32 * i;
      before.rotate_channel(low_[i], plane, plane < half(), angles, rotary);
      before.rotate_channel(high_[i], plane + half(), plane < half(), angles, rotary);
    }
  }

  /// The same for pairs of channels 2i and 2i + 1. Half a head is an even number of channels:
  /// neighbouring ones are in neighbouring lanes.
  __device__ void rotate_pairs(const float2* angles, int rotary) {
    const bool second = threadIdx.x % 2 != 0;
    const auto turn = [&](float& x, int channel, bool is_channel) {
      const float beside = __shfl_xor_sync(kAll, x, 1);
      if (is_channel && channel < rotary) {
        const float2 angle = angles[channel / 2];
        x = x * angle.x + (second ? beside : -beside) * angle.y;
      }
    };
#pragma unroll
    for (int i = 0; i < kPlanes; ++i) {
      const int plane = static_cast<int>(threadIdx.x) % 32 + 32 * i;
      turn(low_[i], plane, plane < half());
      turn(high_[i], plane + half(), plane < half());
    }
  }

  __device__ void store(float* to) const {
    each([&](int i, int plane) {
      to[plane] = low_[i];
      to[plane + half()] = high_[i];
    });
  }
  __device__ void store(bf16* to) const {
    auto* rounded = reinterpret_cast<__nv_bfloat16*>(to);
    each([&](int i, int plane) {
      rounded[plane] = __float2bfloat16_rn(low_[i]);
      rounded[plane + half()] = __float2bfloat16_rn(high_[i]);
    });
  }

  /// In the 16-bit type of products with entries of this format (kv_codes.cuh).
  template <class Format>
  __device__ void store_16_bits(std::byte* to) const {
    each([&](int i, int plane) {
      if constexpr (Format::kLargest > 0.0F) {
        auto* rounded = reinterpret_cast<__half*>(to);
        rounded[plane] = __float2half_rn(low_[i]);
        rounded[plane + half()] = __float2half_rn(high_[i]);
      } else {
        auto* rounded = reinterpret_cast<__nv_bfloat16*>(to);
        rounded[plane] = __float2bfloat16_rn(low_[i]);
        rounded[plane + half()] = __float2bfloat16_rn(high_[i]);
      }
    });
  }

  /// ops::rotate() and ops::rotate_back(), to the bit.
  __device__ void rotate() {
    flip_signs();
    mix_channels();
  }
  __device__ void rotate_back() {
    mix_channels();
    flip_signs();
  }

  /// Rounds to codes, passed to put(channel / Format::kChannels, code); returns the scale.
  template <class Format, class Put>
  __device__ float encode(const Put& put) const {
    float largest = 0.0F;
    each([&](int i, int) { largest = fmaxf(largest, fmaxf(fabsf(low_[i]), fabsf(high_[i]))); });
    for (int step = 16; step > 0; step /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, step));
    }
    if constexpr (Format::kChannels == 2) {
      return encode_pairs(largest, put);
    } else {
      const float scale = scale_for<Format>(largest);
      const float inverse = 1.0F / scale;
      each([&](int i, int plane) {
        put(plane, Format::encode(low_[i] * inverse));
        put(plane + half(), Format::encode(high_[i] * inverse));
      });
      return scale;
    }
  }

 private:
  static constexpr unsigned kAll = 0xFFFFFFFFU;

  [[nodiscard]] __device__ constexpr int half() const {
    return dim_ / 2;
  }
  // Whether it is one of the head's channels.
  [[nodiscard]] __device__ constexpr bool has(int channel) const {
    return D > 0 || channel < width_;
  }
  // The largest power of two in half().
  [[nodiscard]] __device__ constexpr int block() const {
    return half() & -half();
  }

  __device__ void flip_signs() {
    each([&](int i, int plane) {
      low_[i] = flips_sign(plane) ? -low_[i] : low_[i];
      high_[i] = flips_sign(plane + half()) ? -high_[i] : high_[i];
    });
  }

  // The same additions as in ops/cpu/attention/rotation.cc, in the same order.
  __device__ void mix_channels() {
    for (int width = 1; width < block() && width < 32; width *= 2) {
      const bool second = (threadIdx.x & width) != 0;
#pragma unroll
      for (int i = 0; i < kPlanes; ++i) {
        const float low = __shfl_xor_sync(kAll, low_[i], width);
        const float high = __shfl_xor_sync(kAll, high_[i], width);
        low_[i] = second ? __fsub_rn(low, low_[i]) : __fadd_rn(low_[i], low);
        high_[i] = second ? __fsub_rn(high, high_[i]) : __fadd_rn(high_[i], high);
      }
    }
#pragma unroll
    for (int step = 1; step < kPlanes; step *= 2) {
#pragma unroll
      for (int i = 0; i + step < kPlanes; ++i) {
        if (32 * step < block() && (i & step) == 0) {
          mix(low_[i], low_[i + step]);
          mix(high_[i], high_[i + step]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kPlanes; ++i) {
      mix(low_[i], high_[i]);
    }
    if (half() > block()) {
      reflect(low_);
      reflect(high_);
    }
    const float factor = __fdiv_rn(1.0F, __fsqrt_rn(2.0F * block()));
#pragma unroll
    for (int i = 0; i < kPlanes; ++i) {
      low_[i] = __fmul_rn(low_[i], factor);
      high_[i] = __fmul_rn(high_[i], factor);
    }
  }

  static __device__ void mix(float& a, float& b) {
    const float sum = __fadd_rn(a, b);
    b = __fsub_rn(a, b);
    a = sum;
  }

  // Subtracts 2 / (number of blocks) of the blocks' sum from each block of pairs.
  __device__ void reflect(float (&x)[kPlanes]) const {
    float sum = 0.0F;
    each([&](int i, int) { sum = __fadd_rn(sum, x[i]); });
    for (int step = block(); step < 32; step *= 2) {
      sum = __fadd_rn(sum, __shfl_xor_sync(kAll, sum, step));
    }
    const float part = __fmul_rn(sum, 2.0F / (half() / block()));
#pragma unroll
    for (float& value : x) {
      value = __fsub_rn(value, part);
    }
  }

  // The scale of 4-bit codes, as on the host (mean_size() in ops/cpu/attention/kv_page.cc).
  __device__ float mean_size(float largest) const {
    if (!(largest >= FLT_MIN)) {
      return 0.0F;
    }
    const float inverse = __fdiv_rn(1.0F, largest);
    float squares = 0.0F;
    const auto add = [&](float x) {
      const float part = __fmul_rn(x, inverse);
      squares = __fadd_rn(squares, __fmul_rn(part, part));
    };
    each([&](int i, int) {
      add(low_[i]);
      add(high_[i]);
    });
    for (int step = 16; step > 0; step /= 2) {
      squares = __fadd_rn(squares, __shfl_xor_sync(kAll, squares, step));
    }
    const float size = __fmul_rn(largest, __fsqrt_rn(__fdiv_rn(squares, static_cast<float>(dim_))));
    const float scale = size < FLT_MIN ? 0.0F : __bfloat162float(__float2bfloat16_rn(size));
    return isfinite(scale) ? scale : 1.0F;
  }

  // Neighbouring channels are in neighbouring lanes.
  template <class Put>
  __device__ float encode_pairs(float largest, const Put& put) const {
    const float scale = mean_size(largest);
    const float inverse = scale > 0.0F ? __fdiv_rn(1.0F, scale) : 0.0F;
#pragma unroll
    for (int i = 0; i < kPlanes; ++i) {
      const int plane = static_cast<int>(threadIdx.x) % 32 + 32 * i;
      const auto store = [&](float x, int channel) {
        const std::uint32_t code = nearest_code(__fmul_rn(x, inverse));
        const std::uint32_t next = __shfl_xor_sync(kAll, code, 1);
        if (plane % 2 == 0 && plane < half()) {
          put(channel / 2, CodePair{static_cast<std::uint8_t>(code | next << 4)});
        }
      };
      store(low_[i], plane);
      store(high_[i], plane + half());
    }
    return scale;
  }

  // The value of a channel; each lane may request a different one.
  __device__ float gathered(int channel) const {
    const int plane = channel % half();
    float own = 0.0F;
#pragma unroll
    for (int i = 0; i < kPlanes; ++i) {
      const float low = __shfl_sync(kAll, low_[i], plane % 32);
      const float high = __shfl_sync(kAll, high_[i], plane % 32);
      if (plane / 32 == i) {
        own = channel < half() ? low : high;
      }
    }
    return own;
  }

  // Applies rotate_first() to x, the value of `channel` of this vector, if is_channel.
  __device__ void rotate_channel(float& x, int channel, bool is_channel, const float2* angles,
                                 int rotary) const {
    const bool rotates = is_channel && channel < rotary;
    const bool first = channel < rotary / 2;  // of its pair
    const int other = first ? channel + rotary / 2 : channel - rotary / 2;
    const float beside = gathered(rotates ? other : 0);
    if (rotates) {
      const float2 angle = angles[first ? channel : other];
      x = x * angle.x + (first ? -beside : beside) * angle.y;
    }
  }

  template <class F>
  __device__ void each(const F& f) const {
#pragma unroll
    for (int i = 0; i < kPlanes; ++i) {
      if (const int plane = threadIdx.x % 32 + 32 * i; (D > 0 && D % 64 == 0) || plane < half()) {
        f(i, plane);
      }
    }
  }

  static __device__ float sum(float x) {
    for (int step = 16; step > 0; step /= 2) {
      x += __shfl_xor_sync(0xFFFFFFFFU, x, step);
    }
    return x;
  }

  [[no_unique_address]] HeadDim<D> dim_;
  [[no_unique_address]] HeadDim<D> width_;  // the channels after it are zeros
  float low_[kPlanes];
  float high_[kPlanes];
};

}  // namespace winnow::ops::cuda
