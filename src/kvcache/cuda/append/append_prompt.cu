// A chunk of one sequence, in three kernels: (1) the chunk's queries and the band, whose lead comes
// from the window; (2) which entries leave the window and which of those are archived; (3) storing
// entries in their pages (kernel 2 does so if they are few).
#include "base/cuda/launch.cuh"
#include "kvcache/cuda/append/append_kernels.h"
#include "kvcache/cuda/append/block_scan.cuh"
#include "kvcache/cuda/append/limited_archive.cuh"
#include "kvcache/cuda/append/page_table.cuh"
#include "kvcache/cuda/append/projection.cuh"
#include "kvcache/cuda/entry_place.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::kvcache::cuda {
namespace {

constexpr int kWarpsPerBlock = 8;

// A head's entries in the band.
template <class Code, int D>
struct BandEntries {
  int codes;  // per key or value
  Code* keys;
  Code* values;
  __nv_bfloat16* key_scales;
  __nv_bfloat16* value_scales;

  __device__ BandEntries(const BandView& band, int head, ops::cuda::HeadDim<D> dim)
      : codes(codes_of<Code>(dim)) {
    const auto first = static_cast<std::size_t>(head) * band.stride;
    keys = reinterpret_cast<Code*>(band.keys) + first * codes;
    values = reinterpret_cast<Code*>(band.values) + first * codes;
    key_scales = reinterpret_cast<__nv_bfloat16*>(band.scales) + 2 * first;
    value_scales = key_scales + band.stride;
  }
};

// One warp copies entry i < lead of the band, from position length - lead + i.
template <class Format, int D>
__device__ void copy_lead(const CacheView& cache, const PrefillAppend& chunk, const BandView& band,
                          int lead, int head, int i) {
  using Code = typename Format::Code;
  const int lane = threadIdx.x % 32;
  const std::size_t row = cache.row(chunk.layer, chunk.slot, head);
  const EntryPlace<Code, D> from(cache, cache.window_pages + row * cache.window_stride,
                                 (chunk.length - lead + i) % cache.ring);
  const BandEntries<Code, D> to(band, head, from.dim);
  for (int d = lane; d < to.codes; d += 32) {
    to.keys[i * to.codes + d] = from.key(d);
    to.values[i * to.codes + d] = from.value(d);
  }
  if (Format::kLargest > 0.0F && lane == 0) {
    to.key_scales[i] = from.key_scale();
    to.value_scales[i] = from.value_scale();
  }
}

// Called by a block of query_warps() + 2 warps.
template <class Format, int D>
__device__ void project_token(const Projection& projection, const PrefillAppend& chunk,
                              const BandView& band, int lead, int head, int token,
                              ops::cuda::HeadDim<D> dim) {
  using Code = typename Format::Code;
  const int warp = threadIdx.x / 32;
  const int group = projection.group;
  const int queries = projection.query_warps();
  const std::size_t heads = projection.kv_heads * group;
  ops::cuda::HeadVector<D> vector(dim, width_of(projection, dim));
  const Decision decision =
      project<D>(projection, QkvRow(chunk.qkv, row_of(projection, token, dim)), token,
                 chunk.length + token, chunk.layer, head, vector);
  if (threadIdx.x == 0) {
    const std::size_t own = static_cast<std::size_t>(head) * chunk.tokens + token;
    band.decisions[own] = decision.taken ? 1 : 0;
    if (band.logits != nullptr) {
      band.logits[own] = without_nan(decision.logit);
    }
  }
  if constexpr (Format::kRotated) {
    vector.rotate();
  }
  const BandEntries<Code, D> to(band, head, dim);
  const auto store = [&](Code* codes, __nv_bfloat16* scales) {
    Code* own = codes + static_cast<std::size_t>(lead + token) * to.codes;
    const float scale = vector.template encode<Format>([&](int d, Code code) { own[d] = code; });
    if (Format::kLargest > 0.0F && threadIdx.x % 32 == 0) {
      scales[lead + token] = __float2bfloat16_rn(scale);
    }
  };
  if (warp < queries) {
    vector.store(chunk.queries + (token * heads + head * group + warp) * dim);
  } else if (warp == queries) {
    store(to.keys, to.key_scales);
  } else {
    store(to.values, to.value_scales);
  }
}

// The first blocks of a head take a token each; in the others, a warp copies an entry of the lead.
template <class Format, int D>
__global__ void __launch_bounds__(kMostAppendThreads<D>)
    band_kernel(CacheView cache, Projection projection, PrefillAppend chunk, BandView band,
                int lead) {
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const int head = blockIdx.y;
  const int token = blockIdx.x;
  if (token < chunk.tokens) {
    project_token<Format, D>(projection, chunk, band, lead, head, token,
                             ops::cuda::HeadDim<D>(cache.head_dim));
    return;
  }
  const int i = static_cast<int>((token - chunk.tokens) * blockDim.x + threadIdx.x) / 32;
  if (i < lead) {
    copy_lead<Format, D>(cache, chunk, band, lead, head, i);
  }
}

// Whether the positions around a chunk are kept or evicted in one row.
struct Fate {
  const CacheView& cache;
  const std::uint32_t* marks;     // of the ring's slots, before the chunk
  const std::uint8_t* decisions;  // of the chunk's tokens
  const float* window_logits;     // limited archives: as the marks
  const float* logits;            // as the decisions
  int length;
  int tokens;
  int sinks;  // streaming: the number of sinks; else -1

  /// Whether the entry at `position` < length + tokens is marked by any token so far.
  __device__ bool is_marked(int position) const {
    const int decider = position + cache.shift;
    if (decider < length) {
      const int slot = position % cache.ring;
      return (marks[slot / 32] >> (slot % 32) & 1U) != 0;
    }
    return decider < length + tokens && decisions[decider - length] != 0;
  }
  /// Limited archives: the logit of the decision about that entry; 0 if there is none yet.
  [[nodiscard]] __device__ float logit_of(int position) const {
    const int decider = position + cache.shift;
    return decider < length            ? window_logits[position % cache.ring]
           : decider < length + tokens ? logits[decider - length]
                                       : 0.0F;
  }
  __device__ bool is_kept(int position) const {
    return cache.ring == 0 || (sinks >= 0 ? position < sinks : !is_marked(position));
  }
};

// Writes the ring's marks after the chunk: a warp per word, a thread per slot. A thread reads only
// its own word of the old marks.
__device__ void renew_marks(const CacheView& cache, const Fate& fate, std::uint32_t* marks) {
  const int last = fate.length + fate.tokens - 1;
  const int lane = threadIdx.x % 32;
  for (int word = threadIdx.x / 32; word < cache.mark_words; word += kScanThreads / 32) {
    const int slot = word * 32 + lane;
    bool marked = false;
    if (slot < cache.ring) {
      const int back = (last - slot) % cache.ring;
      const int position = last - (back < 0 ? back + cache.ring : back);
      marked = position >= 0 && fate.is_marked(position);
    }
    const std::uint32_t bits = __ballot_sync(0xFFFFFFFFU, marked);
    if (lane == 0) {
      marks[word] = bits;
    }
  }
}

// The same for the logits: a thread per slot, which reads only its own one of the old logits.
__device__ void renew_logits(const CacheView& cache, const Fate& fate, float* logits) {
  const int last = fate.length + fate.tokens - 1;
  for (int slot = threadIdx.x; slot < cache.ring; slot += kScanThreads) {
    const int back = (last - slot) % cache.ring;
    const int position = last - (back < 0 ? back + cache.ring : back);
    if (position >= 0) {
      logits[slot] = fate.logit_of(position);
    }
  }
}

// A limited archive that is full takes the entry at `position` in the place of another one, or
// drops it. Returns the slot, or -1. By all threads of a block.
__device__ int replace_highest(const CacheView& cache, std::size_t row, const Fate& fate, int count,
                               int position) {
  const Candidate highest = highest_of_archive(cache, row, count);
  const float logit = fate.logit_of(position);
  if (!replaces(logit, highest)) {
    return -1;
  }
  if (threadIdx.x == 0) {
    note_entry(cache, row, highest.slot, position, logit);
  }
  return highest.slot;
}

// Finds which leaving entries are kept and takes pages for them. If a limited archive has no room
// for all of them, the chunk is one token. By a block of kScanThreads.
__device__ void archive(const CacheView& cache, const PrefillAppend& chunk, const BandView& band,
                        int lead, int head) {
  const std::size_t row = cache.row(chunk.layer, chunk.slot, head);
  std::uint32_t* marks = cache.marks + row * cache.mark_words;
  float* window_logits = cache.window_logits + row * cache.ring;
  const std::size_t first_token = static_cast<std::size_t>(head) * chunk.tokens;
  const Fate fate{cache,
                  marks,
                  band.decisions + first_token,
                  window_logits,
                  band.logits + first_token,
                  chunk.length,
                  chunk.tokens,
                  cache.sinks != nullptr ? cache.sinks[chunk.slot] : -1};
  const bool is_limited = cache.window_logits != nullptr;
  const int limit = is_limited ? archive_limit(cache, chunk.slot) : INT_MAX;
  std::int32_t* seen = band.seen + static_cast<std::size_t>(head) * chunk.tokens;
  std::int32_t* kept = band.kept + static_cast<std::size_t>(head) * band.stride;
  const int archived = cache.archive_counts[row];
  // Token t pushes entry t - (ring - lead) of the band out of the window.
  const int first_leaver = cache.ring - lead;
  int count = 0;
  for (int first = 0; first < chunk.tokens; first += kScanThreads) {
    const int token = first + threadIdx.x;
    const int leaver = token - first_leaver;
    const bool leaves = token < chunk.tokens && leaver >= 0;
    const bool keep = leaves && fate.is_kept(chunk.length - lead + leaver);
    int total = 0;
    const int through = block_scan(keep ? 1 : 0, total);
    if (keep) {
      kept[count + through - 1] = leaver;
      const int slot = archived + count + through - 1;
      if (cache.positions != nullptr && slot < limit) {
        const int position = chunk.length - lead + leaver;
        note_entry(cache, row, slot, position, is_limited ? fate.logit_of(position) : 0.0F);
      }
    }
    if (token < chunk.tokens) {
      // Without a window the whole chunk is in the band.
      seen[token] = archived + (cache.ring > 0 ? min(count + through, limit - archived) : 0);
    }
    count += total;
  }
  int slot = archived;  // of the first entry that is kept
  int added = count;
  if (archived + count > limit) {
    added = 0;
    slot = replace_highest(cache, row, fate, archived, chunk.length - cache.ring);
    count = slot >= 0 ? 1 : 0;
  }
  extend(cache, cache.archive_pages + row * cache.archive_stride, archived, added);
  if (cache.ring > 0) {
    const int in_window = min(chunk.length, cache.ring);
    extend(cache, cache.window_pages + row * cache.window_stride, in_window,
           min(chunk.length + chunk.tokens, cache.ring) - in_window);
  }
  __syncthreads();  // all threads have read the old marks and logits
  if (cache.ring > 0) {
    renew_marks(cache, fate, marks);
  }
  if (is_limited) {
    renew_logits(cache, fate, window_logits);
  }
  if (threadIdx.x == 0) {
    band.counts[2 * head] = slot;
    band.counts[2 * head + 1] = count;
    cache.archive_counts[row] = archived + added;
  }
}

// One warp stores entry `job`: first come the archived entries, then the newest ones, which go to
// the ring.
template <class Format, int D>
__device__ void store(const CacheView& cache, const PrefillAppend& chunk, const BandView& band,
                      int lead, int in_ring, int head, int job) {
  using Code = typename Format::Code;
  const int lane = threadIdx.x % 32;
  const std::size_t row = cache.row(chunk.layer, chunk.slot, head);
  const int first_slot = band.counts[2 * head];
  const int kept = band.counts[2 * head + 1];
  if (job >= kept + in_ring) {
    return;
  }
  int source = 0;
  const std::uint32_t* pages = nullptr;
  int slot = 0;
  if (job < kept) {
    source = band.kept[static_cast<std::size_t>(head) * band.stride + job];
    pages = cache.archive_pages + row * cache.archive_stride;
    slot = first_slot + job;
  } else {
    const int token = chunk.tokens - in_ring + job - kept;
    source = lead + token;
    pages = cache.window_pages + row * cache.window_stride;
    slot = (chunk.length + token) % cache.ring;
  }
  const EntryPlace<Code, D> to(cache, pages, slot);
  const BandEntries<Code, D> from(band, head, to.dim);
  const Code* key = from.keys + static_cast<std::size_t>(source) * from.codes;
  const Code* value = from.values + static_cast<std::size_t>(source) * from.codes;
  for (int d = lane; d < from.codes; d += 32) {
    to.key(d) = key[d];
    to.value(d) = value[d];
  }
  if (Format::kLargest > 0.0F && lane == 0) {
    to.key_scale() = from.key_scales[source];
    to.value_scale() = from.value_scales[source];
  }
}

// A block per head.
__global__ void __launch_bounds__(kScanThreads)
    archive_kernel(CacheView cache, PrefillAppend chunk, BandView band, int lead) {
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  archive(cache, chunk, band, lead, static_cast<int>(blockIdx.x));
}

// A warp per entry.
template <class Format, int D>
__global__ void store_kernel(CacheView cache, PrefillAppend chunk, BandView band, int lead,
                             int in_ring) {
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  store<Format, D>(cache, chunk, band, lead, in_ring, static_cast<int>(blockIdx.y),
                   static_cast<int>(blockIdx.x * kWarpsPerBlock + threadIdx.x / 32));
}

// Both steps for few tokens: a block per head, in which each warp stores an entry.
template <class Format, int D>
__global__ void __launch_bounds__(kScanThreads)
    archive_and_store_kernel(CacheView cache, PrefillAppend chunk, BandView band, int lead,
                             int in_ring) {
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const int head = blockIdx.x;
  archive(cache, chunk, band, lead, head);
  __syncthreads();
  store<Format, D>(cache, chunk, band, lead, in_ring, head, static_cast<int>(threadIdx.x) / 32);
}

template <class Format, int D>
void launch_band(const CacheView& cache, const Projection& projection, const PrefillAppend& chunk,
                 const BandView& band, int lead, cudaStream_t stream) {
  const int warps = projection.query_warps() + 2;
  const dim3 blocks(static_cast<unsigned>(chunk.tokens + (lead + warps - 1) / warps),
                    static_cast<unsigned>(projection.kv_heads));
  winnow::cuda::launch(band_kernel<Format, D>, blocks, warps * 32, 0, stream, true, cache,
                       projection, chunk, band, lead);
}

template <class Format, int D>
void launch(const CacheView& cache, const Projection& projection, const PrefillAppend& chunk,
            const BandView& band, cudaStream_t stream) {
  const int lead = cache.held_before(chunk.length);
  const auto heads = static_cast<unsigned>(projection.kv_heads);
  const auto blocks = [](int warps) {
    return static_cast<unsigned>((warps + kWarpsPerBlock - 1) / kWarpsPerBlock);
  };
  launch_band<Format, D>(cache, projection, chunk, band, lead, stream);
  const int in_ring = min(chunk.tokens, cache.ring);
  const int leaving = max(0, chunk.tokens - (cache.ring - lead));
  const int stored = leaving + in_ring;  // at most
  if (stored <= kScanThreads / 32) {
    winnow::cuda::launch(archive_and_store_kernel<Format, D>, heads, kScanThreads, 0, stream, true,
                         cache, chunk, band, lead, in_ring);
    return;
  }
  winnow::cuda::launch(archive_kernel, heads, kScanThreads, 0, stream, true, cache, chunk, band,
                       lead);
  winnow::cuda::launch(store_kernel<Format, D>, dim3(blocks(stored), heads), kWarpsPerBlock * 32, 0,
                       stream, true, cache, chunk, band, lead, in_ring);
}

}  // namespace

void launch_append(ops::EntryFormat format, int head_dim, const CacheView& cache,
                   const Projection& projection, const PrefillAppend& chunk, const BandView& band,
                   cudaStream_t stream) {
  ops::cuda::with_any_shape(
      format, head_dim, has_own_append(head_dim, projection), [&]<ops::EntryFormat kType, int D>() {
        launch<ops::cuda::FormatOf<kType>, D>(cache, projection, chunk, band, stream);
      });
}

void launch_project(ops::EntryFormat format, int head_dim, const CacheView& cache,
                    const Projection& projection, const PrefillAppend& chunk, const BandView& band,
                    cudaStream_t stream) {
  ops::cuda::with_any_shape(
      format, head_dim, has_own_append(head_dim, projection), [&]<ops::EntryFormat kType, int D>() {
        launch_band<ops::cuda::FormatOf<kType>, D>(cache, projection, chunk, band, 0, stream);
      });
}

}  // namespace winnow::kvcache::cuda
