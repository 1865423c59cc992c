// The interface between the host side of the device cache and its kernels for whole sequences.
#pragma once

#include <cuda_runtime_api.h>

#include "kvcache/cuda/cache_view.h"

namespace winnow::kvcache::cuda {

/// Puts all pages [0, capacity) on the free list.
void launch_fill_free_list(const CacheView& cache, int capacity, cudaStream_t stream);

/// The values of the rule that follow from a sequence's limits; rules [6, slots], see CacheView.
struct SlotRule {
  std::int32_t values[6];  // ring, sinks, budget, prompt tokens, spared first and newest tokens
};
void launch_set_rule(std::int32_t* rules, int slots, int slot, SlotRule rule, cudaStream_t stream);

/// Sets a sequence's length to `length`: move_on() of next_pages.cuh.
void launch_move_on(const CacheView& cache, int slot, int length, cudaStream_t stream);

/// Frees a sequence's pages and resets its slot. `cache.ring` is the sequence's.
void launch_release(const CacheView& cache, int slot, cudaStream_t stream);

/// Makes slot `to`, which is new, a fork of slot `from` (DeviceCache::fork). `cache.ring` is the
/// sequence's.
void launch_fork(const CacheView& cache, int head_dim, int from, int to, cudaStream_t stream);

/// Pages of a sequence that are copied to or from other memory: row after row, a row's archive
/// before its window. All pointers are to page-locked host memory or to the device's.
struct PageTransfer {
  int slot = 0;
  int rows = 0;
  const std::int32_t* places = nullptr;   // [rows] rows of tables [layers, kv_heads]
  const std::int32_t* offsets = nullptr;  // [rows] the number of pages of all rows before
  std::byte* pages = nullptr;
  std::uint64_t* sums = nullptr;  // optional [rows]: each row's checksum (base/checksum.h)
};
/// Which of these pages are read now: [first, end), to `pages` from its beginning on.
struct PageRange {
  std::int64_t first = 0;
  std::int64_t end = 0;
};
/// Adds to `sums`, which are in the device's memory.
void launch_read_pages(const CacheView& cache, const PageTransfer& transfer, PageRange range,
                       cudaStream_t stream);
/// Takes pages from the free list and fills them, all at once. Lengths and archive counts are set
/// already. Replaces `sums`.
void launch_write_pages(const CacheView& cache, const PageTransfer& transfer, cudaStream_t stream);

}  // namespace winnow::kvcache::cuda
