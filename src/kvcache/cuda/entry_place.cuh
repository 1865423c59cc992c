// Entries in the pages of the device's cache.
#pragma once

#include <cuda_bf16.h>

#include <type_traits>

#include "kvcache/cuda/cache_view.h"
#include "ops/cuda/pages/entry_codes.cuh"
#include "ops/cuda/pages/head_dim.cuh"
#include "ops/cuda/pages/kv_page.h"
#include "ops/cuda/pages/page_address.cuh"

namespace winnow::kvcache::cuda {

inline __device__ int pages_for(int entries) {
  return (entries + ops::kPageEntries - 1) / ops::kPageEntries;
}

/// The capacity of a sequence's window; 0: no window.
inline __device__ int ring_of(const CacheView& cache, int slot) {
  return cache.rings != nullptr ? cache.rings[slot] : cache.ring;
}

/// Whether a layer has a sliding window.
inline __device__ bool slides(const CacheView& cache, int layer) {
  return cache.reaches != nullptr && cache.reaches[layer] > 0;
}

/// Whether a layer has this KV head.
inline __device__ bool has_head(const CacheView& cache, int layer, int head) {
  return cache.layer_heads == nullptr || head < cache.layer_heads[layer];
}

/// The number of codes of a key or a value (a pair of 4-bit codes counts as one), and the most of
/// a kernel that is built for D channels, or for any number (D = 0).
template <class Code>
__host__ __device__ constexpr int codes_of(int head_dim) {
  return std::is_same_v<Code, ops::cuda::CodePair> ? head_dim / 2 : head_dim;
}
template <class Code, int D>
inline constexpr int kMostCodes = codes_of<Code>(D > 0 ? D : ops::cuda::kMostHeadDim);

/// The place of an entry, whose codes one warp reads or writes.
template <class Code, int D>
struct EntryPlace {
  std::byte* page;
  int entry;
  [[no_unique_address]] ops::cuda::HeadDim<D> dim;

  __device__ EntryPlace(const CacheView& cache, const std::uint32_t* pages, int slot)
      : page(cache.pool + pages[slot / ops::kPageEntries] * cache.page_bytes),
        entry(slot % ops::kPageEntries),
        dim(cache.head_dim) {}
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
  [[nodiscard]] __device__ constexpr ops::cuda::PageAddress address() const {
    return {dim, 8 * sizeof(Code)};
  }

  template <class T>
  __device__ T& at(int offset) const {
    return *reinterpret_cast<T*>(page + offset);
  }
};

/// Two codes in a word, to which other threads may write their own codes at the same time.
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

/// The same for two codes that may be in different words.
class SplitPairReference {
 public:
  __device__ SplitPairReference(std::byte* page, ops::cuda::CodePlace first,
                                ops::cuda::CodePlace second)
      : page_(page), first_(first), second_(second) {}

  __device__ operator ops::cuda::CodePair() const {
    return {static_cast<std::uint8_t>(read(first_) | read(second_) << 4)};
  }
  __device__ void operator=(ops::cuda::CodePair pair) const {
    write(first_, pair.bits & 15U);
    write(second_, pair.bits >> 4);
  }

 private:
  [[nodiscard]] __device__ std::uint32_t* word(ops::cuda::CodePlace place) const {
    return reinterpret_cast<std::uint32_t*>(page_ + place.offset);
  }
  [[nodiscard]] __device__ std::uint32_t read(ops::cuda::CodePlace place) const {
    return ops::cuda::code_from(__ldcg(word(place)), place.index);
  }
  __device__ void write(ops::cuda::CodePlace place, std::uint32_t code) const {
    atomicXor(word(place), ops::cuda::place_code(read(place) ^ code, place.index));
  }

  std::byte* page_;
  ops::cuda::CodePlace first_;
  ops::cuda::CodePlace second_;
};

template <int D>
struct EntryPlace<ops::cuda::CodePair, D> {
  std::byte* page;
  int entry;
  [[no_unique_address]] ops::cuda::HeadDim<D> dim;

  __device__ EntryPlace(const CacheView& cache, const std::uint32_t* pages, int slot)
      : page(cache.pool + pages[slot / ops::kPageEntries] * cache.page_bytes),
        entry(slot % ops::kPageEntries),
        dim(cache.head_dim) {}

  __device__ CodePairReference key(int pair) const {
    return {page, address().key_code(entry, 2 * pair), 1};
  }
  /// Neighbouring channels are in different eighths if head_dim is no multiple of 16.
  __device__ auto value(int pair) const {
    const auto first = address().value_code(entry, 2 * pair);
    if constexpr (D > 0) {
      return CodePairReference(page, first, 2);
    } else {
      return SplitPairReference(page, first, address().value_code(entry, 2 * pair + 1));
    }
  }
  __device__ __nv_bfloat16& key_scale() const { return scale(address().key_scale(entry)); }
  __device__ __nv_bfloat16& value_scale() const { return scale(address().value_scale(entry)); }

 private:
  [[nodiscard]] __device__ constexpr ops::cuda::PageAddress address() const { return {dim, 4}; }

  __device__ __nv_bfloat16& scale(int offset) const {
    return *reinterpret_cast<__nv_bfloat16*>(page + offset);
  }
};

/// Takes a page off the free list. The host has made sure that one is free.
inline __device__ std::uint32_t take_page(const CacheView& cache) {
  return cache.free_pages[atomicSub(cache.free_count, 1) - 1];
}

}  // namespace winnow::kvcache::cuda
