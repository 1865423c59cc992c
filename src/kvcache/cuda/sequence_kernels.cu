#include "base/cuda/device.h"
#include "kvcache/cuda/sequence_kernels.h"
#include "ops/kv_page.h"

namespace winnow::kvcache::cuda {
namespace {

constexpr int kThreads = 256;

__device__ int pages_for(int entries) {
  return (entries + ops::kPageEntries - 1) / ops::kPageEntries;
}

__global__ void fill_free_list_kernel(CacheView cache, int capacity) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < capacity) {
    cache.free_pages[i] = capacity - 1 - i;  // page 0 is taken first
  }
  if (i == 0) {
    *cache.free_count = capacity;
  }
}

// One block per row: layer blockIdx.y, head blockIdx.x.
__global__ void __launch_bounds__(kThreads) release_kernel(CacheView cache, int slot) {
  const std::size_t row = cache.row(blockIdx.y, slot, blockIdx.x);
  const int archive = pages_for(cache.archive_counts[row]);
  const int window = pages_for(min(cache.lengths[slot], cache.ring));
  __shared__ int first;
  if (threadIdx.x == 0) {
    first = atomicAdd(cache.free_count, archive + window);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < archive + window; i += kThreads) {
    cache.free_pages[first + i] = i < archive
                                      ? cache.archive_pages[row * cache.archive_stride + i]
                                      : cache.window_pages[row * cache.window_stride + i - archive];
  }
  for (int i = threadIdx.x; i < cache.mark_words; i += kThreads) {
    cache.marks[row * cache.mark_words + i] = 0;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    cache.archive_counts[row] = 0;
  }
}

__global__ void clear_length_kernel(CacheView cache, int slot) {
  cache.lengths[slot] = 0;
}

__global__ void __launch_bounds__(kThreads) fork_kernel(CacheView cache, int from, int to) {
  const std::size_t source = cache.row(blockIdx.y, from, blockIdx.x);
  const std::size_t target = cache.row(blockIdx.y, to, blockIdx.x);
  const int archive = pages_for(cache.archive_counts[source]);
  const int window = pages_for(min(cache.lengths[from], cache.ring));
  __shared__ int top;
  if (threadIdx.x == 0) {
    top = atomicSub(cache.free_count, archive + window);
    cache.archive_counts[target] = cache.archive_counts[source];
    cache.lengths[to] = cache.lengths[from];  // all rows write the same
  }
  __syncthreads();
  for (int i = 0; i < archive + window; ++i) {
    const bool archived = i < archive;
    std::uint32_t* pages = archived ? cache.archive_pages : cache.window_pages;
    const std::size_t stride = archived ? cache.archive_stride : cache.window_stride;
    const int index = archived ? i : i - archive;
    const std::uint32_t page = cache.free_pages[top - 1 - i];
    const auto* read = reinterpret_cast<const uint4*>(cache.pool + pages[source * stride + index] *
                                                                       cache.page_bytes);
    auto* write = reinterpret_cast<uint4*>(cache.pool + page * cache.page_bytes);
    for (int j = threadIdx.x; j < cache.page_bytes / sizeof(uint4); j += kThreads) {
      write[j] = read[j];
    }
    if (threadIdx.x == 0) {
      pages[target * stride + index] = page;
    }
  }
  for (int i = threadIdx.x; i < cache.mark_words; i += kThreads) {
    cache.marks[target * cache.mark_words + i] = cache.marks[source * cache.mark_words + i];
  }
}

}  // namespace

void launch_fill_free_list(const CacheView& cache, int capacity, cudaStream_t stream) {
  fill_free_list_kernel<<<(capacity + kThreads - 1) / kThreads, kThreads, 0, stream>>>(cache,
                                                                                       capacity);
  winnow::cuda::check_launch("free list");
}

void launch_release(const CacheView& cache, int slot, cudaStream_t stream) {
  release_kernel<<<dim3(cache.kv_heads, cache.layers), kThreads, 0, stream>>>(cache, slot);
  winnow::cuda::check_launch("release a sequence");
  clear_length_kernel<<<1, 1, 0, stream>>>(cache, slot);
  winnow::cuda::check_launch("release a sequence");
}

void launch_fork(const CacheView& cache, int from, int to, cudaStream_t stream) {
  fork_kernel<<<dim3(cache.kv_heads, cache.layers), kThreads, 0, stream>>>(cache, from, to);
  winnow::cuda::check_launch("fork a sequence");
}

}  // namespace winnow::kvcache::cuda
