// A warp's lane's operands from a page (warp_attention.cuh): read on demand, or held in registers,
// so that the page's stage can be refilled before its entries are processed.
#pragma once

#include <cstdint>
#include <cstring>

#include "ops/cuda/pages/kv_codes.cuh"
#include "ops/cuda/pages/page_address.cuh"
#include "ops/cuda/pages/q4_codes.cuh"

namespace winnow::ops::cuda {

/// Scales of entries 2c, 2c + 1 and 2c + 8, 2c + 9 in bf16.
using ScalePairs = std::uint32_t[2];

/// As floats; ones where the format has none.
template <class Codes>
__device__ void unpack_scales(const ScalePairs& pairs, float (&scales)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    scales[2 * half] = Codes::kScaled ? __uint_as_float(pairs[half] << 16) : 1.0F;
    scales[2 * half + 1] = Codes::kScaled ? __uint_as_float(pairs[half] & 0xFFFF0000U) : 1.0F;
  }
}

template <class Codes, int D>
class SharedPage {
 public:
  static constexpr PageAddress kAddress{D, kCodeBits<Codes>};
  static constexpr int kWords = kAddress.lane_words();  // of half a page's keys or values
  using Words = std::uint32_t[2][kWords];

  SharedPage() = default;
  /// In shared memory.
  __device__ explicit SharedPage(const std::byte* page) : page_(page) {}

  __device__ void keys(Words& words) const { read(page_, words); }
  __device__ void values(Words& words) const { read(page_ + kAddress.values(), words); }
  __device__ void key_scales(ScalePairs& pairs) const {
    read(page_ + kAddress.key_scale(0), pairs);
  }
  __device__ void value_scales(ScalePairs& pairs) const {
    read(page_ + kAddress.value_scale(0), pairs);
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }

  static __device__ void read(const std::byte* part, Words& words) {
    constexpr int kWide = kWords % 4 == 0 ? 4 : kWords % 2 == 0 ? 2 : 1;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::byte* from = part + half * (kAddress.values() / 2) + lane() * (kWords * 4);
#pragma unroll
      for (int i = 0; i < kWords; i += kWide) {
        memcpy(words[half] + i, __builtin_assume_aligned(from + 4 * i, 4 * kWide), 4 * kWide);
      }
    }
  }
  static __device__ void read(const std::byte* scales, ScalePairs& pairs) {
    if constexpr (Codes::kScaled) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        pairs[half] = reinterpret_cast<const std::uint32_t*>(scales)[4 * half + lane() % 4];
      }
    }
  }

  const std::byte* page_ = nullptr;
};

template <class Codes, int D>
class HeldPage {
 public:
  using Page = SharedPage<Codes, D>;

  __device__ void read(const Page& page) {
    page.keys(keys_);
    page.values(values_);
    page.key_scales(key_scales_);
    page.value_scales(value_scales_);
  }

  __device__ void keys(typename Page::Words& words) const { memcpy(words, keys_, sizeof(words)); }
  __device__ void values(typename Page::Words& words) const {
    memcpy(words, values_, sizeof(words));
  }
  __device__ void key_scales(ScalePairs& pairs) const { memcpy(pairs, key_scales_, sizeof(pairs)); }
  __device__ void value_scales(ScalePairs& pairs) const {
    memcpy(pairs, value_scales_, sizeof(pairs));
  }

 private:
  typename Page::Words keys_;
  typename Page::Words values_;
  ScalePairs key_scales_;
  ScalePairs value_scales_;
};

}  // namespace winnow::ops::cuda
