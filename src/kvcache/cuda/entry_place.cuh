// Entries in the pages of the device's cache.
#pragma once

#include <cuda_bf16.h>

#include "kvcache/cuda/cache_view.h"
#include "ops/cuda/page_address.cuh"

namespace winnow::kvcache::cuda {

inline __device__ int pages_for(int entries) {
  return (entries + ops::kPageEntries - 1) / ops::kPageEntries;
}

/// Entries of a sequence's window; 0: it has none.
inline __device__ int ring_of(const CacheView& cache, int slot) {
  return cache.rings != nullptr ? cache.rings[slot] : cache.ring;
}

/// An entry's place; a warp reads or writes its channels.
template <class Code, int D>
struct EntryPlace {
  std::byte* page;
  int entry;

  __device__ EntryPlace(const CacheView& cache, const std::uint32_t* pages, int slot)
      : page(cache.pool + pages[slot / ops::kPageEntries] * cache.page_bytes),
        entry(slot % ops::kPageEntries) {}

  __device__ Code& key(int d) const { return at<Code>(address().key(entry, d)); }
  __device__ Code& value(int d) const { return at<Code>(address().value(entry, d)); }
  __device__ __nv_bfloat16& key_scale() const {
    return at<__nv_bfloat16>(address().key_scale(entry));
  }
  __device__ __nv_bfloat16& value_scale() const {
    return at<__nv_bfloat16>(address().value_scale(entry));
  }

 private:
  static __device__ constexpr ops::cuda::PageAddress address() { return {D, sizeof(Code)}; }

  template <class T>
  __device__ T& at(int offset) const {
    return *reinterpret_cast<T*>(page + offset);
  }
};

/// Takes a page off the free list. The host has made sure that there is one.
inline __device__ std::uint32_t take_page(const CacheView& cache) {
  return cache.free_pages[atomicSub(cache.free_count, 1) - 1];
}

}  // namespace winnow::kvcache::cuda
