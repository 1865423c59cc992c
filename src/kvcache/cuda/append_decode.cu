// One token per sequence. A block takes a sequence and a KV head: group + 2 warps, one for each
// query head, one for the key, one for the value.
#include "base/cuda/launch.cuh"
#include "kvcache/cuda/append_kernels.h"
#include "kvcache/cuda/entry_place.cuh"
#include "kvcache/cuda/projection.cuh"

namespace winnow::kvcache::cuda {
namespace {

constexpr int kLeastThreads = 96;  // of a block: one query head, key and value

// What a thread knows of its row before the token is known: nothing of it was written by the
// kernels just before, so it is read while they finish.
struct RowState {
  int count;                     // archive entries
  std::uint32_t mark_of_slot;    // the words that hold the marks of the ring slot that turns over
  std::uint32_t mark_of_latest;  // and of the newest token's

  __device__ RowState(const CacheView& cache, std::size_t row, int length)
      : count(cache.archive_counts[row]), mark_of_slot(0), mark_of_latest(0) {
    if (cache.ring > 0) {
      const std::uint32_t* marks = cache.marks + row * cache.mark_words;
      mark_of_slot = marks[length % cache.ring / 32];
      mark_of_latest = marks[max(length - 1, 0) % cache.ring / 32];
    }
  }
};

struct Places {
  int newest;    // slot of the new entry, in the ring or, without one, in the archive
  int archived;  // archive slot that the leaving entry goes to, -1 if it is forgotten
};

// Moves the row's state on by one token. One thread's work.
__device__ Places advance_row(const CacheView& cache, std::size_t row, int length, bool decision,
                              const RowState& state) {
  const auto push = [&] {
    if (state.count % ops::kPageEntries == 0) {
      cache.archive_pages[row * cache.archive_stride + state.count / ops::kPageEntries] =
          take_page(cache);
    }
    cache.archive_counts[row] = state.count + 1;
    return state.count;
  };
  if (cache.ring == 0) {
    return {push(), -1};
  }
  const int slot = length % cache.ring;
  const int latest = max(length - 1, 0) % cache.ring;
  std::uint32_t marks = state.mark_of_slot;
  const auto mark = [](std::uint32_t word, int at, bool evicted) {
    const std::uint32_t bit = 1U << (at % 32);
    return evicted ? word | bit : word & ~bit;
  };
  std::uint32_t* words = cache.marks + row * cache.mark_words;
  if (cache.shift == 1 && length > 0) {
    const std::uint32_t decided = mark(state.mark_of_latest, latest, decision);
    words[latest / 32] = decided;
    marks = latest / 32 == slot / 32 ? decided : marks;
  }
  words[slot / 32] = mark(marks, slot, cache.shift == 0 && decision);
  Places places{slot, -1};
  if (length >= cache.ring) {
    const bool kept = (marks >> (slot % 32) & 1U) == 0;
    places.archived = kept ? push() : -1;
  } else if (slot % ops::kPageEntries == 0) {
    cache.window_pages[row * cache.window_stride + slot / ops::kPageEntries] = take_page(cache);
  }
  return places;
}

// The entry that the ring's slot holds now, spread over a block's threads.
template <class Code, int D>
class LeavingEntry {
 public:
  __device__ void load(const EntryPlace<Code, D>& from, bool scaled) {
    each([&](int i, int d) {
      key_[i] = from.key(d);
      value_[i] = from.value(d);
    });
    if (scaled) {
      key_scale_ = from.key_scale();
      value_scale_ = from.value_scale();
    }
  }
  __device__ void store(const EntryPlace<Code, D>& to, bool scaled) const {
    each([&](int i, int d) {
      to.key(d) = key_[i];
      to.value(d) = value_[i];
    });
    if (scaled && threadIdx.x == 0) {
      to.key_scale() = key_scale_;
      to.value_scale() = value_scale_;
    }
  }

 private:
  static constexpr int kEach = (D + kLeastThreads - 1) / kLeastThreads;

  template <class F>
  __device__ static void each(const F& f) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (const int d = threadIdx.x + i * blockDim.x; d < D) {
        f(i, d);
      }
    }
  }

  Code key_[kEach];
  Code value_[kEach];
  __nv_bfloat16 key_scale_;
  __nv_bfloat16 value_scale_;
};

template <class Format, int D>
__global__ void append_kernel(CacheView cache, Projection projection, DecodeAppend step) {
  using Code = typename Format::Code;
  using Place = EntryPlace<Code, D>;
  constexpr bool kScaled = Format::kLargest > 0.0F;
  const int head = blockIdx.x;
  const int token = blockIdx.y;
  const int warp = threadIdx.x / 32;
  const int group = projection.group;
  const int slot = step.slots[token];
  const int length = cache.lengths[slot];
  const std::size_t row = cache.row(step.layer, slot, head);
  const std::size_t heads = projection.kv_heads * group;
  const std::uint32_t* archive = cache.archive_pages + row * cache.archive_stride;
  const std::uint32_t* window = cache.window_pages + row * cache.window_stride;
  const RowState state(cache, row, length);
  const bool leaves = cache.ring > 0 && length >= cache.ring;
  LeavingEntry<Code, D> leaving;
  if (leaves) {
    leaving.load(Place(cache, window, length % cache.ring), kScaled);
  }

  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  ops::cuda::HeadVector<D> vector;
  const float* qkv = step.qkv + token * (heads + 2 * projection.kv_heads) * D;
  const bool decision = project<D>(projection, qkv, token, length, step.layer, head, vector);
  if (warp < group) {
    vector.store(step.queries + (token * heads + head * group + warp) * D);
  }
  __shared__ Places places;
  if (threadIdx.x == 0) {
    places = advance_row(cache, row, length, decision, state);
  }
  __syncthreads();
  if (places.archived >= 0) {
    leaving.store(Place(cache, archive, places.archived), kScaled);
  }
  const Place newest(cache, cache.ring > 0 ? window : archive, places.newest);
  if (warp == group) {
    const float scale =
        vector.template encode<Format>([&](int d, Code code) { newest.key(d) = code; });
    if (kScaled && threadIdx.x % 32 == 0) {
      newest.key_scale() = __float2bfloat16_rn(scale);
    }
  } else if (warp == group + 1) {
    const float scale =
        vector.template encode<Format>([&](int d, Code code) { newest.value(d) = code; });
    if (kScaled && threadIdx.x % 32 == 0) {
      newest.value_scale() = __float2bfloat16_rn(scale);
    }
  }
}

__global__ void set_length_kernel(CacheView cache, int slot, int length) {
  cache.lengths[slot] = length;
}

template <class Format>
void launch(int head_dim, const CacheView& cache, const Projection& projection,
            const DecodeAppend& step, cudaStream_t stream) {
  const dim3 grid(projection.kv_heads, step.batch);
  const int threads = (projection.group + 2) * 32;
  const auto run = [&](auto* kernel) {
    winnow::cuda::launch(kernel, grid, threads, 0, stream, true, cache, projection, step);
  };
  switch (head_dim) {
    case 64:
      return run(append_kernel<Format, 64>);
    case 80:
      return run(append_kernel<Format, 80>);
    case 96:
      return run(append_kernel<Format, 96>);
    default:
      return run(append_kernel<Format, 128>);
  }
}

}  // namespace

void launch_append(DType format, int head_dim, const CacheView& cache, const Projection& projection,
                   const DecodeAppend& step, cudaStream_t stream) {
  switch (format) {
    case DType::bf16:
      return launch<ops::cuda::Bf16Format>(head_dim, cache, projection, step, stream);
    case DType::f8e4m3:
      return launch<ops::cuda::F8Format>(head_dim, cache, projection, step, stream);
    default:
      return launch<ops::cuda::I8Format>(head_dim, cache, projection, step, stream);
  }
}

void launch_set_length(const CacheView& cache, int slot, int length, cudaStream_t stream) {
  set_length_kernel<<<1, 1, 0, stream>>>(cache, slot, length);
  winnow::cuda::check_launch("advance the cache");
}

}  // namespace winnow::kvcache::cuda
