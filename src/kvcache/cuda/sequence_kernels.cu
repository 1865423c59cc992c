#include <iterator>

#include "base/checksum.h"
#include "base/cuda/device.h"
#include "kvcache/cuda/append/next_pages.cuh"
#include "kvcache/cuda/sequence_kernels.h"
#include "ops/kv_page.h"

namespace winnow::kvcache::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void fill_free_list_kernel(CacheView cache, int capacity) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < capacity) {
    cache.free_pages[i] = capacity - 1 - i;  // page 0 is taken first
    cache.sharers[i] = 0;
  }
  if (i == 0) {
    *cache.free_count = capacity;
  }
}

// A row's pages, the archive's first.
struct RowPages {
  std::uint32_t* archive;
  std::uint32_t* window;
  int archived;  // pages
  int all;

  // For the sequence in `slot`, or for another one with as many entries.
  __device__ RowPages(const CacheView& cache, int layer, std::size_t row, int slot, int entries)
      : archive(cache.archive_pages + row * cache.archive_stride),
        window(cache.window_pages + row * cache.window_stride) {
    const int length = cache.lengths[slot];
    const bool own_window = slides(cache, layer);
    archived =
        pages_for(cache.drops_each && !own_window ? min(length, cache.budgets[slot] + 1) : entries);
    all = archived + pages_for(min(length, own_window ? cache.reaches[layer] : cache.ring));
  }

  __device__ std::uint32_t& operator[](int i) const {
    return i < archived ? archive[i] : window[i - archived];
  }
};

// One block per row. No other kernel handles shared pages, and no two rows of a sequence share a
// page.
__global__ void __launch_bounds__(kThreads) release_kernel(CacheView cache, int slot) {
  if (!has_head(cache, blockIdx.y, blockIdx.x)) {
    return;
  }
  const std::size_t row = cache.row(blockIdx.y, slot, blockIdx.x);
  const RowPages pages(cache, blockIdx.y, row, slot, cache.archive_counts[row]);
  for (int i = threadIdx.x; i < pages.all; i += kThreads) {
    const std::uint32_t page = pages[i];
    if (cache.sharers[page] > 0) {
      --cache.sharers[page];
    } else {
      cache.free_pages[atomicAdd(cache.free_count, 1)] = page;
    }
  }
  for (int i = threadIdx.x; i < cache.mark_words; i += kThreads) {
    cache.marks[row * cache.mark_words + i] = 0;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    cache.archive_counts[row] = 0;
  }
}

__global__ void set_rule_kernel(std::int32_t* rules, int slots, int slot, SlotRule rule) {
  rules[threadIdx.x * slots + slot] = rule.values[threadIdx.x];
}

__global__ void __launch_bounds__(kThreads) move_on_kernel(CacheView cache, int slot, int length) {
  move_on(cache, slot, length);
}

__global__ void clear_length_kernel(CacheView cache, int slot) {
  cache.lengths[slot] = 0;
}

template <class T>
__device__ void copy_columns(T* table, std::size_t from, std::size_t to, std::size_t columns) {
  for (std::size_t i = threadIdx.x; table != nullptr && i < columns; i += kThreads) {
    table[to * columns + i] = table[from * columns + i];
  }
}

__device__ void copy_page(const CacheView& cache, const std::byte* from, std::byte* to) {
  const auto* read = reinterpret_cast<const uint4*>(from);
  auto* write = reinterpret_cast<uint4*>(to);
  for (int i = threadIdx.x; i < cache.page_bytes / sizeof(uint4); i += kThreads) {
    write[i] = read[i];
  }
}

__device__ std::byte* page_at(const CacheView& cache, std::uint32_t page) {
  return cache.pool + page * cache.page_bytes;
}

__global__ void __launch_bounds__(kThreads)
    fork_kernel(CacheView cache, int head_dim, int from, int to) {
  if (!has_head(cache, blockIdx.y, blockIdx.x)) {
    return;
  }
  const std::size_t source = cache.row(blockIdx.y, from, blockIdx.x);
  const std::size_t target = cache.row(blockIdx.y, to, blockIdx.x);
  const int entries = cache.archive_counts[source];
  const int length = cache.lengths[from];
  const RowPages pages(cache, blockIdx.y, source, from, entries);
  const RowPages copies(cache, blockIdx.y, target, from, entries);
  const int shared = cache.positions != nullptr ? 0 : entries / ops::kPageEntries;
  __shared__ int top;
  if (threadIdx.x == 0) {
    top = atomicSub(cache.free_count, pages.all - shared);
    cache.archive_counts[target] = entries;
    cache.lengths[to] = length;  // all rows write the same value
  }
  __syncthreads();
  for (int i = threadIdx.x; i < shared; i += kThreads) {
    copies[i] = pages[i];
    ++cache.sharers[pages[i]];
  }
  for (int i = shared; i < pages.all; ++i) {
    const std::uint32_t page = cache.free_pages[top - 1 - (i - shared)];
    copy_page(cache, page_at(cache, pages[i]), page_at(cache, page));
    if (threadIdx.x == 0) {
      copies[i] = page;
    }
  }
  copy_columns(cache.marks, source, target, cache.mark_words);
  copy_columns(cache.positions, source, target, cache.entry_stride);
  copy_columns(cache.received, source, target, cache.entry_stride);
  copy_columns(cache.window_logits, source, target, cache.ring);
  copy_columns(cache.open_keys, source, target, head_dim);
  copy_columns(cache.open_values, source, target, head_dim);
  copy_columns(cache.open_weights, source, target, 1);
}

// Copies page `index` of a row. Returns the thread's part of the row's checksum.
__device__ std::uint64_t copy_checked(const CacheView& cache, int index, const std::byte* from,
                                      std::byte* to) {
  const auto* read = reinterpret_cast<const ulonglong2*>(from);
  auto* write = reinterpret_cast<ulonglong2*>(to);
  const int pairs = cache.page_bytes / sizeof(ulonglong2);
  std::uint64_t place = 2 * (static_cast<std::uint64_t>(index) * pairs + threadIdx.x);
  std::uint64_t sum = 0;
  for (int i = threadIdx.x; i < pairs; i += kThreads, place += 2 * kThreads) {
    const ulonglong2 words = read[i];
    write[i] = words;
    sum += checked_word(words.x, place) + checked_word(words.y, place + 1);
  }
  return sum;
}

// The sum over all threads, in the first thread.
__device__ std::uint64_t sum_over_block(std::uint64_t own) {
  __shared__ std::uint64_t of_warps[kThreads / 32];
  for (int distance = 16; distance > 0; distance /= 2) {
    own += __shfl_down_sync(~0U, static_cast<unsigned long long>(own), distance);
  }
  if (threadIdx.x % 32 == 0) {
    of_warps[threadIdx.x / 32] = own;
  }
  __syncthreads();
  std::uint64_t sum = 0;
  for (const std::uint64_t of_warp : of_warps) {
    sum += of_warp;
  }
  return sum;
}

// The sequence's pages in the row of a transfer that block (row, _) handles.
__device__ RowPages transferred_pages(const CacheView& cache, const PageTransfer& transfer) {
  const int index = transfer.places[blockIdx.x];
  const int layer = index / cache.kv_heads;
  const std::size_t row = cache.row(layer, transfer.slot, index % cache.kv_heads);
  return RowPages(cache, layer, row, transfer.slot, cache.archive_counts[row]);
}

// Several blocks per row share its pages.
__global__ void __launch_bounds__(kThreads)
    read_pages_kernel(CacheView cache, PageTransfer transfer, PageRange range) {
  const RowPages pages = transferred_pages(cache, transfer);
  const std::int64_t offset = transfer.offsets[blockIdx.x];
  const auto begin = static_cast<int>(max(range.first - offset, std::int64_t{0}));
  const auto end = static_cast<int>(min(range.end - offset, std::int64_t{pages.all}));
  std::uint64_t sum = 0;
  for (int i = begin + blockIdx.y; i < end; i += gridDim.y) {
    sum += copy_checked(cache, i, page_at(cache, pages[i]),
                        transfer.pages + (offset + i - range.first) * cache.page_bytes);
  }
  if (transfer.sums != nullptr && begin < end) {
    sum = sum_over_block(sum);
    if (threadIdx.x == 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(transfer.sums + blockIdx.x), sum);
    }
  }
}

// One block per row.
__global__ void __launch_bounds__(kThreads)
    write_pages_kernel(CacheView cache, PageTransfer transfer) {
  const RowPages pages = transferred_pages(cache, transfer);
  const std::byte* from = transfer.pages + transfer.offsets[blockIdx.x] * cache.page_bytes;
  __shared__ int top;
  if (threadIdx.x == 0) {
    top = atomicSub(cache.free_count, pages.all);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < pages.all; i += kThreads) {
    pages[i] = cache.free_pages[top - 1 - i];
  }
  __syncthreads();
  std::uint64_t sum = 0;
  for (int i = 0; i < pages.all; ++i) {
    sum += copy_checked(cache, i, from + i * cache.page_bytes, page_at(cache, pages[i]));
  }
  if (transfer.sums != nullptr) {
    sum = sum_over_block(sum);
    if (threadIdx.x == 0) {
      transfer.sums[blockIdx.x] = sum;
    }
  }
}

}  // namespace

void launch_fill_free_list(const CacheView& cache, int capacity, cudaStream_t stream) {
  fill_free_list_kernel<<<(capacity + kThreads - 1) / kThreads, kThreads, 0, stream>>>(cache,
                                                                                       capacity);
  winnow::cuda::check_launch("free list");
}

void launch_set_rule(std::int32_t* rules, int slots, int slot, SlotRule rule, cudaStream_t stream) {
  set_rule_kernel<<<1, std::size(rule.values), 0, stream>>>(rules, slots, slot, rule);
  winnow::cuda::check_launch("set a sequence's limits");
}

void launch_move_on(const CacheView& cache, int slot, int length, cudaStream_t stream) {
  move_on_kernel<<<1, kThreads, 0, stream>>>(cache, slot, length);
  winnow::cuda::check_launch("advance the cache");
}

void launch_release(const CacheView& cache, int slot, cudaStream_t stream) {
  release_kernel<<<dim3(cache.kv_heads, cache.layers), kThreads, 0, stream>>>(cache, slot);
  winnow::cuda::check_launch("release a sequence");
  clear_length_kernel<<<1, 1, 0, stream>>>(cache, slot);
  winnow::cuda::check_launch("release a sequence");
}

void launch_fork(const CacheView& cache, int head_dim, int from, int to, cudaStream_t stream) {
  fork_kernel<<<dim3(cache.kv_heads, cache.layers), kThreads, 0, stream>>>(cache, head_dim, from,
                                                                           to);
  winnow::cuda::check_launch("fork a sequence");
}

void launch_read_pages(const CacheView& cache, const PageTransfer& transfer, PageRange range,
                       cudaStream_t stream) {
  constexpr int kBlocksPerRow = 8;  // so that few long rows, too, use the memory's bandwidth
  read_pages_kernel<<<dim3(transfer.rows, kBlocksPerRow), kThreads, 0, stream>>>(cache, transfer,
                                                                                 range);
  winnow::cuda::check_launch("read a sequence");
}

void launch_write_pages(const CacheView& cache, const PageTransfer& transfer, cudaStream_t stream) {
  write_pages_kernel<<<transfer.rows, kThreads, 0, stream>>>(cache, transfer);
  winnow::cuda::check_launch("write a sequence");
}

}  // namespace winnow::kvcache::cuda
