// Entries in the pages of the device's cache.
#pragma once

#include <cuda_bf16.h>

#include "kvcache/cuda/cache_view.h"
#include "ops/cuda/pages/entry_codes.cuh"
#include "ops/cuda/pages/page_address.cuh"

namespace winnow::kvcache::cuda {

inline __device__ int pages_for(int entries) {
  return (entries + ops::kPageEntries - 1) / ops::kPageEntries;
}

/// Entries of a sequence's window; 0: it has none.
inline __device__ int ring_of(const CacheView& cache, int slot) {
  return cache.rings != nullptr ? cache.rings[slot] : cache.ring;
}

/// Whether a layer has a sliding window.
inline __device__ bool slides(const CacheView& cache, int layer) {
  return cache.reaches != nullptr && cache.reaches[layer] > 0;
}

/// An entry's place; a warp reads or writes its codes, of which there are kCodes.
template <class Code, int D>
struct EntryPlace {
  static constexpr int kCodes = D;
  std::byte* page;
  int entry;

  __device__ EntryPlace(const CacheView& cache, const std::uint32_t* pages, int slot)
      : page(cache.pool + pages[slot / ops::kPageEntries] * cache.page_bytes),
        entry(slot % ops::kPageEntries) {}
  __device__ EntryPlace(std::byte* page, int entry) : page(page), entry(entry) {}

  __device__ Code& key(int d) const { return at<Code>(address().key(entry, d)); }
  __device__ Code& value(int d) const { return at<Code>(address().value(entry, d)); }
  __device__ __nv_bfloat16& key_scale() const {
    return at<__nv_bfloat16>(address().key_scale(entry));
  }
  __device__ __nv_bfloat16& value_scale() const {
    return at<__nv_bfloat16>(address().value_scale(entry));
  }

 private:
  static __device__ constexpr ops::cuda::PageAddress address() { return {D, 8 * sizeof(Code)}; }

  template <class T>
  __device__ T& at(int offset) const {
    return *reinterpret_cast<T*>(page + offset);
  }
};

/// Two codes within words that others may be writing their own codes to at the same time.
class CodePairReference {
 public:
  __device__ CodePairReference(std::byte* page, ops::cuda::CodePlace first, int step)
      : word_(reinterpret_cast<std::uint32_t*>(page + first.offset)),
        first_(first.index),
        second_(first.index + step) {}

  __device__ operator ops::cuda::CodePair() const {
    const std::uint32_t word = __ldcg(word_);
    return {static_cast<std::uint8_t>(ops::cuda::code_from(word, first_) |
                                      ops::cuda::code_from(word, second_) << 4)};
  }
  __device__ void operator=(ops::cuda::CodePair pair) const {
    const std::uint32_t changed = __ldcg(word_) ^ place(pair.bits & 15U, pair.bits >> 4);
    atomicXor(word_, changed & place(15U, 15U));
  }

 private:
  [[nodiscard]] __device__ std::uint32_t place(std::uint32_t first, std::uint32_t second) const {
    return ops::cuda::place_code(first, first_) | ops::cuda::place_code(second, second_);
  }

  std::uint32_t* word_;
  int first_;
  int second_;
};

template <int D>
struct EntryPlace<ops::cuda::CodePair, D> {
  static constexpr int kCodes = D / 2;
  std::byte* page;
  int entry;

  __device__ EntryPlace(const CacheView& cache, const std::uint32_t* pages, int slot)
      : page(cache.pool + pages[slot / ops::kPageEntries] * cache.page_bytes),
        entry(slot % ops::kPageEntries) {}

  __device__ CodePairReference key(int pair) const {
    return {page, address().key_code(entry, 2 * pair), 1};
  }
  __device__ CodePairReference value(int pair) const {
    return {page, address().value_code(entry, 2 * pair), 2};
  }
  __device__ __nv_bfloat16& key_scale() const { return scale(address().key_scale(entry)); }
  __device__ __nv_bfloat16& value_scale() const { return scale(address().value_scale(entry)); }

 private:
  static __device__ constexpr ops::cuda::PageAddress address() { return {D, 4}; }

  __device__ __nv_bfloat16& scale(int offset) const {
    return *reinterpret_cast<__nv_bfloat16*>(page + offset);
  }
};

/// Takes a page off the free list. The host has made sure that there is one.
inline __device__ std::uint32_t take_page(const CacheView& cache) {
  return cache.free_pages[atomicSub(cache.free_count, 1) - 1];
}

}  // namespace winnow::kvcache::cuda
