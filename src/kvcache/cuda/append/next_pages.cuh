// The pages that the next token of a sequence takes from the free list.
#pragma once

#include "kvcache/cuda/entry_place.cuh"

namespace winnow::kvcache::cuda {

/// Whether a row of the archive may take a page for the token at position `length`, the next one.
/// For DMS this is exact unless that token itself decides about the entry that leaves. For DMC the
/// open entry may or may not be archived.
inline __device__ bool may_take_page(const CacheView& cache, std::size_t row, int length) {
  if (cache.archive_counts[row] % ops::kPageEntries != 0 || length < cache.ring) {
    return false;
  }
  if (cache.mark_words == 0 || cache.shift == cache.ring) {
    return true;
  }
  const int leaving = length % cache.ring;
  return (cache.marks[row * cache.mark_words + leaving / 32] >> (leaving % 32) & 1U) == 0;
}

/// Whether a row's archive holds as many entries as it may.
inline __device__ bool is_full(const CacheView& cache, std::size_t row, int slot) {
  return cache.window_logits != nullptr &&
         cache.archive_counts[row] >= max(0, cache.budgets[slot] - cache.ring);
}

/// Sets a sequence's length to `length` and writes its next_pages. By all threads of a block.
inline __device__ void move_on(const CacheView& cache, int slot, int length) {
  const int rows = cache.layers * cache.kv_heads;
  int pages = 0;
  for (int first = 0; first < rows && cache.next_pages != nullptr; first += blockDim.x) {
    const int i = first + static_cast<int>(threadIdx.x);
    const int layer = i / cache.kv_heads;
    const int head = i % cache.kv_heads;
    const std::size_t row = cache.row(layer, slot, head);
    pages +=
        __syncthreads_count(i < rows && has_head(cache, layer, head) && !slides(cache, layer) &&
                            may_take_page(cache, row, length) && !is_full(cache, row, slot));
  }
  if (threadIdx.x == 0) {
    cache.lengths[slot] = length;
    if (cache.next_pages != nullptr) {
      cache.next_pages[slot] = pages;
    }
  }
}

}  // namespace winnow::kvcache::cuda
