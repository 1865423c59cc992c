// The keys and values of cached entries as floats.
#pragma once

#include <cstdint>

#include "kvcache/cuda/entry_place.cuh"
#include "ops/cuda/pages/entry_codes.cuh"
#include "ops/cuda/pages/head_vector.cuh"

namespace winnow::kvcache::cuda {

/// The channels of a cached key or value, as they are stored.
template <class Format, int D, bool kIsKey>
class EntryRow {
 public:
  __device__ EntryRow(const CacheView& cache, const std::uint32_t* pages, int slot)
      : place_(cache, pages, slot), scale_(scale_at(place_)) {}

  __device__ float operator[](int d) const {
    const int place = d / Format::kChannels;
    if constexpr (kIsKey) {
      return Format::dequantize(place_.key(place), d) * scale_;
    } else {
      return Format::dequantize(place_.value(place), d) * scale_;
    }
  }

 private:
  using Place = EntryPlace<typename Format::Code, D>;

  static __device__ float scale_at(const Place& place) {
    if constexpr (Format::kLargest > 0.0F) {
      return __bfloat162float(kIsKey ? place.key_scale() : place.value_scale());
    } else {
      return 1.0F;
    }
  }

  Place place_;
  float scale_;
};

/// A cached key or value, as it is stored, in the registers of a warp.
template <class Format, int D, bool kIsKey>
__device__ ops::cuda::HeadVector<D> load_entry(const CacheView& cache, const std::uint32_t* pages,
                                               int slot) {
  ops::cuda::HeadVector<D> vector{ops::cuda::HeadDim<D>(cache.head_dim)};
  vector.load(EntryRow<Format, D, kIsKey>(cache, pages, slot), nullptr);
  return vector;
}

/// The L1 norm of an entry's original value, computed by a warp for all of its lanes.
template <class Format, int D>
__device__ float value_norm(const CacheView& cache, const std::uint32_t* pages, int slot) {
  auto value = load_entry<Format, D, false>(cache, pages, slot);
  if constexpr (Format::kRotated) {
    value.rotate_back();
  }
  return value.l1_norm();
}

}  // namespace winnow::kvcache::cuda
