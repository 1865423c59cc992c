#include <iterator>

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

// One block per row.
template <bool kToHost>
__global__ void __launch_bounds__(kThreads)
    transfer_kernel(CacheView cache, PageTransfer transfer) {
  const int index = transfer.places[blockIdx.x];
  const int layer = index / cache.kv_heads;
  const std::size_t row = cache.row(layer, transfer.slot, index % cache.kv_heads);
  const RowPages pages(cache, layer, row, transfer.slot, cache.archive_counts[row]);
  std::byte* host = transfer.pages + transfer.offsets[blockIdx.x] * cache.page_bytes;
  __shared__ int top;
  if (!kToHost) {
    if (threadIdx.x == 0) {
      top = atomicSub(cache.free_count, pages.all);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < pages.all; i += kThreads) {
      pages[i] = cache.free_pages[top - 1 - i];
    }
    __syncthreads();
  }
  for (int i = 0; i < pages.all; ++i) {
    std::byte* device = page_at(cache, pages[i]);
    std::byte* at = host + i * cache.page_bytes;
    kToHost ? copy_page(cache, device, at) : copy_page(cache, at, device);
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

void launch_read_pages(const CacheView& cache, const PageTransfer& transfer, cudaStream_t stream) {
  transfer_kernel<true><<<transfer.rows, kThreads, 0, stream>>>(cache, transfer);
  winnow::cuda::check_launch("read a sequence");
}

void launch_write_pages(const CacheView& cache, const PageTransfer& transfer, cudaStream_t stream) {
  transfer_kernel<false><<<transfer.rows, kThreads, 0, stream>>>(cache, transfer);
  winnow::cuda::check_launch("write a sequence");
}

}  // namespace winnow::kvcache::cuda
