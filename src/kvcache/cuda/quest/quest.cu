// Quest (kvcache/quest.h): bounds of the keys of each page, and the choice of pages to read.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/cuda/launch.cuh"
#include "kvcache/cuda/append/block_scan.cuh"
#include "kvcache/cuda/entry_place.cuh"
#include "kvcache/cuda/quest/quest_kernels.h"
#include "kvcache/cuda/quest/threshold.cuh"
#include "ops/cuda/pages/entry_codes.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::kvcache::cuda {
namespace {

constexpr int kBoundWarps = 8;
constexpr int kBoundLanes = 8;  // lanes that share a page's bound
constexpr int kBoundThreads = 256;

template <int D>
constexpr int kMostDim = D > 0 ? D : ops::cuda::kMostHeadDim;

__device__ float4 least_of(float4 a, float4 b) {
  return {fminf(a.x, b.x), fminf(a.y, b.y), fminf(a.z, b.z), fminf(a.w, b.w)};
}
__device__ float4 most_of(float4 a, float4 b) {
  return {fmaxf(a.x, b.x), fmaxf(a.y, b.y), fmaxf(a.z, b.z), fmaxf(a.w, b.w)};
}

// The location of a token. A padding token has no slot (-1): it reads an entry of any page, and the
// result is not used.
struct TokenPlace {
  int slot;
  int position;

  __device__ TokenPlace(const CacheView& cache, const QuestTokens& tokens, int token)
      : slot(tokens.slots != nullptr ? tokens.slots[token] : tokens.slot),
        position(tokens.slots == nullptr ? tokens.position + token
                 : slot < 0              ? 0
                                         : cache.lengths[slot]) {}
};

// A warp per page: block (x, head, sequence).
template <class Format, int D>
__global__ void renew_bounds_kernel(CacheView cache, int layer, QuestTokens first, int tokens) {
  using Code = typename Format::Code;
  const ops::cuda::HeadDim<D> dim(cache.head_dim);
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const TokenPlace place(cache, first, blockIdx.z);
  if (place.slot < 0) {
    return;
  }
  const std::size_t row = cache.row(layer, place.slot, blockIdx.y);
  const int entries = cache.archive_counts[row];
  const int index =
      max(0, entries - tokens) / ops::kPageEntries + blockIdx.x * kBoundWarps + threadIdx.x / 32;
  if (index >= pages_for(entries)) {
    return;
  }
  const std::uint32_t* pages = cache.archive_pages + row * cache.archive_stride;
  float* bounds = cache.bounds + static_cast<std::size_t>(pages[index]) * 2 * dim;
  const int count = min(ops::kPageEntries, entries - index * ops::kPageEntries);
  for (int d = threadIdx.x % 32; d < dim; d += 32) {
    float low = INFINITY;
    float high = -INFINITY;
#pragma unroll 8
    for (int entry = 0; entry < count; ++entry) {
      const EntryPlace<Code, D> from(cache, pages, index * ops::kPageEntries + entry);
      const float code = Format::dequantize(from.key(d / Format::kChannels), d);
      const float key = Format::kLargest > 0.0F ? code * __bfloat162float(from.key_scale()) : code;
      low = fminf(low, key);
      high = fmaxf(high, key);
    }
    bounds[d] = low;
    bounds[dim + d] = high;
  }
}

// Entries of a row's archive at a token. Without a window they include the token's own.
__device__ int archived_at(const CacheView& cache, const TokenPlace& token, std::size_t row) {
  return cache.ring == 0 ? token.position + 1 : token.slot < 0 ? 0 : cache.archive_counts[row];
}

// The sizes of a token's choice of pages.
struct Selection {
  int entries;  // in the archive
  int pages;    // Quest's
  int wanted;   // pages to read
  int last;     // 1: the last page, which holds the newest token, is always chosen; else 0

  __device__ Selection(const CacheView& cache, const TokenPlace& token, int entries,
                       int page_entries)
      : entries(entries),
        pages((entries + page_entries - 1) / page_entries),
        wanted(token.slot < 0 || token.position < cache.prompts[token.slot]
                   ? pages
                   : min(pages, pages_read(cache, token.slot, page_entries))),
        last(cache.ring == 0 ? 1 : 0) {}

  // Pages that are chosen by their bounds, and those to choose from.
  __device__ int chosen() const { return wanted - last; }
  __device__ int candidates() const { return pages - last; }

  __device__ int chosen_entries(int page_entries, bool with_last) const {
    return wanted * page_entries - (with_last ? pages * page_entries - entries : 0);
  }

 private:
  // Rule::pages_read().
  static __device__ int pages_read(const CacheView& cache, int slot, int page_entries) {
    return (max(1, cache.budgets[slot] - cache.ring) + page_entries - 1) / page_entries;
  }
};

__global__ void count_chosen_kernel(CacheView cache, QuestTokens tokens, QuestChoice choice) {
  const TokenPlace token(cache, tokens, blockIdx.x);
  const Selection selection(cache, token, token.position + 1, choice.page_entries);
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  choice.entries[row] = selection.chosen_entries(choice.page_entries, true);
  choice.planned[row] = choice.entries[row] - 1;
}

// Bounds of the keys on the cache's pages [0, parts): this lane's groups of four channels.
template <int D>
struct KeyBounds {
  static constexpr int kEach = (kMostDim<D> / 4 + kBoundLanes - 1) / kBoundLanes;
  [[no_unique_address]] ops::cuda::HeadDim<D> dim;
  float4 low[kEach];
  float4 high[kEach];

  // The lane's i-th group of four; beyond the last one for lanes that have fewer.
  static __device__ int quad(int i) {
    return static_cast<int>(threadIdx.x) % kBoundLanes + i * kBoundLanes;
  }

  __device__ KeyBounds(const CacheView& cache, const std::uint32_t* pages, int parts)
      : dim(cache.head_dim) {
    for (int part = 0; part < parts; ++part) {
      const auto* own = reinterpret_cast<const float4*>(cache.bounds) +
                        static_cast<std::size_t>(pages[part]) * (dim / 2);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int at = min(quad(i), dim / 4 - 1);
        low[i] = part == 0 ? own[at] : least_of(low[i], own[at]);
        high[i] = part == 0 ? own[dim / 4 + at] : most_of(high[i], own[dim / 4 + at]);
      }
    }
  }

  // The upper bound of query . key, returned to all lanes.
  __device__ float product(const float* query) const {
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (quad(i) < dim / 4) {
        const float4 q = reinterpret_cast<const float4*>(query)[quad(i)];
        sum += fmaxf(q.x * low[i].x, q.x * high[i].x) + fmaxf(q.y * low[i].y, q.y * high[i].y) +
               fmaxf(q.z * low[i].z, q.z * high[i].z) + fmaxf(q.w * low[i].w, q.w * high[i].w);
      }
    }
    for (int step = kBoundLanes / 2; step > 0; step /= 2) {
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
    }
    return sum;
  }
};

// Upper bounds of the pages to choose from, for all query heads of a group: block (x, KV head,
// token).
template <class Query, int D>
__global__ void __launch_bounds__(kBoundThreads)
    bound_pages_kernel(CacheView cache, int layer, int group, QuestTokens tokens,
                       const Query* queries, QuestChoice choice) {
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  extern __shared__ __align__(16) float query[];  // [group, dim]
  const ops::cuda::HeadDim<D> dim(cache.head_dim);
  const int thread = static_cast<int>(threadIdx.x);
  const std::size_t row = (blockIdx.z * gridDim.y + blockIdx.y) * group;
  for (int i = thread; i < group * dim; i += kBoundThreads) {
    query[i] = to_float(queries[row * dim + i]);
    if (choice.queries != nullptr && blockIdx.x == 0) {
      choice.queries[row * dim + i] = query[i];
    }
  }
  const TokenPlace token(cache, tokens, blockIdx.z);
  const std::size_t state_row = cache.row(layer, token.slot, blockIdx.y);
  const Selection selection(cache, token, archived_at(cache, token, state_row),
                            choice.page_entries);
  if (selection.wanted == selection.pages) {
    return;  // all pages are read
  }
  __syncthreads();
  const std::uint32_t* all = cache.archive_pages + state_row * cache.archive_stride;
  const int parts = choice.page_entries / ops::kPageEntries;  // cache pages per Quest page
  const int count = selection.candidates();
  constexpr int kTogether = kBoundThreads / kBoundLanes;
  for (int first = blockIdx.x * kTogether; first < count; first += gridDim.x * kTogether) {
    const int page = first + thread / kBoundLanes;
    const int from = min(page, count - 1) * parts;
    const KeyBounds<D> keys(cache, all + from, min(parts, pages_for(selection.entries) - from));
    for (int g = 0; g < group; ++g) {
      const float bound = keys.product(query + g * dim);
      if (page < count && thread % kBoundLanes == 0) {
        choice.bounds[(row + g) * choice.stride + page] = bound;
      }
    }
  }
}

// Every query reads the window.
__device__ void choose_window(const CacheView& cache, const TokenPlace& token,
                              std::size_t state_row, std::size_t row, const QuestChoice& choice) {
  for (std::size_t i = threadIdx.x; i < cache.window_stride; i += kScanThreads) {
    choice.window_pages[row * cache.window_stride + i] =
        token.slot < 0 ? 0 : cache.window_pages[state_row * cache.window_stride + i];
  }
  if (threadIdx.x == 0) {
    choice.lengths[blockIdx.y] = token.position;  // all query heads write the same value
  }
}

// Block (query head, token).
__global__ void __launch_bounds__(kScanThreads)
    choose_pages_kernel(CacheView cache, int layer, int group, QuestTokens tokens,
                        QuestChoice choice) {
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const int thread = static_cast<int>(threadIdx.x);
  const std::size_t row = blockIdx.y * gridDim.x + blockIdx.x;
  const TokenPlace token(cache, tokens, blockIdx.y);
  const std::size_t state_row = cache.row(layer, token.slot, blockIdx.x / group);
  const Selection selection(cache, token, archived_at(cache, token, state_row),
                            choice.page_entries);
  if (choice.window_pages != nullptr) {
    choose_window(cache, token, state_row, row, choice);
  }
  const std::uint32_t* all = cache.archive_pages + state_row * cache.archive_stride;
  std::uint32_t* chosen = choice.pages + row * choice.stride;
  const int pages = pages_for(selection.entries);
  if (selection.wanted == selection.pages) {
    for (int i = thread; i < pages; i += kScanThreads) {
      chosen[i] = token.slot < 0 ? 0 : all[i];
    }
    if (thread == 0) {
      choice.entries[row] = selection.entries;
    }
    return;
  }
  const int parts = choice.page_entries / ops::kPageEntries;
  const int candidates = selection.candidates();
  const float* bounds = choice.bounds + row * choice.stride;
  const Threshold threshold =
      selection.chosen() > 0 ? find_threshold(bounds, candidates, selection.chosen()) : Threshold{};
  int equals = 0;
  int count = 0;
  for (int first = 0; first < selection.pages; first += kScanThreads) {
    const int page = first + thread;
    const bool is_candidate = page < candidates;
    const std::uint32_t key = is_candidate ? ordered(bounds[page]) : 0U;
    const bool equal = is_candidate && key == threshold.key;
    int more = 0;
    const int rank = equals + block_scan(equal ? 1 : 0, more);
    equals += more;
    const bool is_last = page == selection.pages - 1;
    const bool keep = (is_last && !is_candidate) || (is_candidate && key > threshold.key) ||
                      (equal && rank <= threshold.equals);  // the oldest on a tie
    const int place = count + block_scan(keep ? 1 : 0, more) - 1;
    count += more;
    for (int part = 0; keep && part < parts && page * parts + part < pages; ++part) {
      chosen[place * parts + part] = all[page * parts + part];
    }
    if (is_last) {
      choice.entries[row] = selection.chosen_entries(choice.page_entries, keep);
    }
  }
}

// The size of the union of what the queries of a group have chosen: block (KV head, token).
__global__ void __launch_bounds__(kScanThreads)
    count_reads_kernel(CacheView cache, int layer, int group, QuestTokens tokens,
                       QuestChoice choice, std::int32_t* reads) {
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  __shared__ int pages;
  __shared__ bool with_last;
  const int thread = static_cast<int>(threadIdx.x);
  const std::size_t own = blockIdx.y * gridDim.x + blockIdx.x;
  const TokenPlace token(cache, tokens, blockIdx.y);
  const std::size_t state_row = cache.row(layer, token.slot, blockIdx.x);
  const int entries = archived_at(cache, token, state_row);
  const Selection selection(cache, token, entries, choice.page_entries);
  const int in_window = min(token.position + 1, cache.ring);
  if (selection.wanted == selection.pages) {
    if (thread == 0) {
      reads[own] = entries + in_window;
    }
    return;
  }
  const std::uint32_t* first = choice.pages + own * group * choice.stride;
  const auto chosen = [&](int g) { return pages_for(choice.entries[own * group + g]); };
  const int all = pages_for(entries);
  const std::uint32_t last = cache.archive_pages[state_row * cache.archive_stride + all - 1];
  if (thread == 0) {
    pages = chosen(0);
    with_last = false;
  }
  __syncthreads();
  for (int g = 0; g < group; ++g) {
    for (int i = thread; i < chosen(g); i += kScanThreads) {
      const std::uint32_t page = first[g * choice.stride + i];
      bool seen = false;
      for (int before = 0; !seen && before < g; ++before) {
        for (int j = 0; !seen && j < chosen(before); ++j) {
          seen = first[before * choice.stride + j] == page;
        }
      }
      if (g > 0 && !seen) {
        atomicAdd(&pages, 1);
      }
      if (page == last) {
        with_last = true;
      }
    }
  }
  __syncthreads();
  if (thread == 0) {  // all pages are full except the last one
    const int missing = with_last ? all * ops::kPageEntries - entries : 0;
    reads[own] = pages * ops::kPageEntries - missing + in_window;
  }
}

template <class Query>
void launch_choose(int head_dim, const CacheView& cache, const QuestLayer& layer,
                   const QuestTokens& tokens, const Query* queries, const QuestChoice& choice,
                   cudaStream_t stream) {
  const int rows = layer.kv_heads * tokens.batch;
  const int blocks = std::max(1, 2 * winnow::cuda::multiprocessor_count() / rows);
  const int bytes = layer.group * head_dim * int{sizeof(float)};
  const bool own = ops::cuda::has_own_kernels(head_dim, layer.group);
  ops::cuda::with_any_head_dim(head_dim, own, [&]<int D>() {
    const auto kernel = bound_pages_kernel<Query, D>;
    winnow::cuda::allow_most_shared_memory(reinterpret_cast<const void*>(kernel));
    winnow::cuda::launch(kernel, dim3(blocks, layer.kv_heads, tokens.batch), kBoundThreads, bytes,
                         stream, true, cache, layer.index, layer.group, tokens, queries, choice);
  });
  winnow::cuda::launch(choose_pages_kernel, dim3(layer.heads(), tokens.batch), kScanThreads, 0,
                       stream, true, cache, layer.index, layer.group, tokens, choice);
}

}  // namespace

void launch_renew_bounds(ops::EntryFormat format, int head_dim, const CacheView& cache,
                         const QuestLayer& layer, const QuestTokens& first, int tokens,
                         cudaStream_t stream) {
  const int pages = tokens / ops::kPageEntries + 2;  // that may have changed
  const dim3 grid((pages + kBoundWarps - 1) / kBoundWarps, layer.kv_heads, first.batch);
  const bool own = ops::cuda::has_own_kernels(head_dim, 1);
  ops::cuda::with_any_shape(format, head_dim, own, [&]<ops::EntryFormat kType, int D>() {
    winnow::cuda::launch(renew_bounds_kernel<ops::cuda::FormatOf<kType>, D>, grid, kBoundWarps * 32,
                         0, stream, true, cache, layer.index, first, tokens);
  });
}

void launch_count_chosen(const CacheView& cache, int heads, const QuestTokens& tokens,
                         const QuestChoice& choice, cudaStream_t stream) {
  count_chosen_kernel<<<tokens.batch, heads, 0, stream>>>(cache, tokens, choice);
  winnow::cuda::check_launch("count what is chosen");
}

void launch_count_reads(const CacheView& cache, const QuestLayer& layer, const QuestTokens& tokens,
                        const QuestChoice& choice, std::int32_t* reads, cudaStream_t stream) {
  winnow::cuda::launch(count_reads_kernel, dim3(layer.kv_heads, tokens.batch), kScanThreads, 0,
                       stream, true, cache, layer.index, layer.group, tokens, choice, reads);
}

void launch_choose_pages(int head_dim, const CacheView& cache, const QuestLayer& layer,
                         const QuestTokens& tokens, const float* queries, const QuestChoice& choice,
                         cudaStream_t stream) {
  launch_choose(head_dim, cache, layer, tokens, queries, choice, stream);
}

void launch_choose_pages(int head_dim, const CacheView& cache, const QuestLayer& layer,
                         const QuestTokens& tokens, const bf16* queries, const QuestChoice& choice,
                         cudaStream_t stream) {
  launch_choose(head_dim, cache, layer, tokens, queries, choice, stream);
}

}  // namespace winnow::kvcache::cuda
