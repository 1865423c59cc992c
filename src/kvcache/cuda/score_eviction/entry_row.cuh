// The keys and values of cached entries as floats.
#pragma once

#include <cstdint>

#include "kvcache/cuda/entry_place.cuh"
#include "ops/cuda/pages/entry_codes.cuh"
#include "ops/cuda/pages/head_vector.cuh"

namespace winnow::kvcache::cuda {

/// The channels of a cached value, as they are stored.
template <class Format, int D>
class ValueRow {
 public:
  __device__ ValueRow(const CacheView& cache, const std::uint32_t* pages, int slot)
      : place_(cache, pages, slot),
        scale_(Format::kLargest > 0.0F ? __bfloat162float(place_.value_scale()) : 1.0F) {}

  __device__ float operator[](int d) const {
    return Format::dequantize(place_.value(d / Format::kChannels), d) * scale_;
  }

 private:
  EntryPlace<typename Format::Code, D> place_;
  float scale_;
};

/// The L1 norm of an entry's original value, computed by a warp for all of its lanes.
template <class Format, int D>
__device__ float value_norm(const CacheView& cache, const std::uint32_t* pages, int slot) {
  ops::cuda::HeadVector<D> value{ops::cuda::HeadDim<D>(cache.head_dim)};
  value.load(ValueRow<Format, D>(cache, pages, slot), nullptr);
  if constexpr (Format::kRotated) {
    value.rotate_back();
  }
  return value.l1_norm();
}

}  // namespace winnow::kvcache::cuda
