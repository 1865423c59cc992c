// One token per sequence. A block takes a sequence and a KV head: group + 2 warps, one for each
// query head, one for the key, one for the value.
#include "base/cuda/device.h"
#include "kvcache/cuda/append_kernels.h"
#include "kvcache/cuda/entry_place.cuh"
#include "kvcache/cuda/projection.cuh"

namespace winnow::kvcache::cuda {
namespace {

// What one thread finds out for its block.
struct Places {
  int newest;    // slot of the new entry, in the ring or, without one, in the archive
  int archived;  // archive slot that the leaving entry goes to, -1 if it is forgotten
};

// Moves the row's state on by one token.
__device__ Places advance_row(const CacheView& cache, std::size_t row, int length, bool decision) {
  std::uint32_t* archive = cache.archive_pages + row * cache.archive_stride;
  std::int32_t& count = cache.archive_counts[row];
  const auto push = [&] {
    if (count % ops::kPageEntries == 0) {
      archive[count / ops::kPageEntries] = take_page(cache);
    }
    return count++;
  };
  if (cache.ring == 0) {
    return {push(), -1};
  }
  std::uint32_t* marks = cache.marks + row * cache.mark_words;
  const auto mark = [&](int slot, bool evicted) {
    const std::uint32_t bit = 1U << (slot % 32);
    marks[slot / 32] = evicted ? marks[slot / 32] | bit : marks[slot / 32] & ~bit;
  };
  const int slot = length % cache.ring;
  if (cache.marks_evicted && cache.shift == 1 && length > 0) {
    mark((length - 1) % cache.ring, decision);
  }
  Places places{slot, -1};
  if (length >= cache.ring) {
    const bool kept = cache.marks_evicted ? (marks[slot / 32] >> (slot % 32) & 1U) == 0
                                          : length - cache.ring < cache.sinks;
    places.archived = kept ? push() : -1;
  } else if (slot % ops::kPageEntries == 0) {
    cache.window_pages[row * cache.window_stride + slot / ops::kPageEntries] = take_page(cache);
  }
  if (cache.marks_evicted) {
    mark(slot, cache.shift == 0 && decision);
  }
  return places;
}

template <class Format, int D>
__global__ void append_kernel(CacheView cache, Projection projection, DecodeAppend step) {
  using Code = typename Format::Code;
  using Place = EntryPlace<Code, D>;
  const int head = blockIdx.x;
  const int token = blockIdx.y;
  const int warp = threadIdx.x / 32;
  const int group = projection.group;
  const int slot = step.slots[token];
  const int length = cache.lengths[slot];
  const std::size_t row = cache.row(step.layer, slot, head);
  const std::size_t heads = projection.kv_heads * group;

  ops::cuda::HeadVector<D> vector;
  const float* qkv = step.qkv + token * (heads + 2 * projection.kv_heads) * D;
  const bool decision = project<D>(projection, qkv, token, length, step.layer, head, vector);
  if (warp < group) {
    vector.store(step.queries + (token * heads + head * group + warp) * D);
  }
  __shared__ Places places;
  if (threadIdx.x == 0) {
    places = advance_row(cache, row, length, decision);
  }
  __syncthreads();
  const std::uint32_t* archive = cache.archive_pages + row * cache.archive_stride;
  const std::uint32_t* window = cache.window_pages + row * cache.window_stride;
  if (places.archived >= 0) {
    const Place from(cache, window, places.newest);
    const Place to(cache, archive, places.archived);
    for (int d = threadIdx.x; d < D; d += blockDim.x) {
      to.key(d) = from.key(d);
      to.value(d) = from.value(d);
    }
    if (Format::kLargest > 0.0F && threadIdx.x == 0) {
      to.key_scale() = from.key_scale();
      to.value_scale() = from.value_scale();
    }
    __syncthreads();  // the leaving entry has been read
  }
  const Place newest(cache, cache.ring > 0 ? window : archive, places.newest);
  if (warp == group) {
    const float scale =
        vector.template encode<Format>([&](int d, Code code) { newest.key(d) = code; });
    if (Format::kLargest > 0.0F && threadIdx.x % 32 == 0) {
      newest.key_scale() = __float2bfloat16_rn(scale);
    }
  } else if (warp == group + 1) {
    const float scale =
        vector.template encode<Format>([&](int d, Code code) { newest.value(d) = code; });
    if (Format::kLargest > 0.0F && threadIdx.x % 32 == 0) {
      newest.value_scale() = __float2bfloat16_rn(scale);
    }
  }
}

__global__ void advance_kernel(CacheView cache, const std::int32_t* slots, int batch) {
  for (int i = threadIdx.x; i < batch; i += blockDim.x) {
    ++cache.lengths[slots[i]];
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
  switch (head_dim) {
    case 64:
      append_kernel<Format, 64><<<grid, threads, 0, stream>>>(cache, projection, step);
      break;
    case 80:
      append_kernel<Format, 80><<<grid, threads, 0, stream>>>(cache, projection, step);
      break;
    case 96:
      append_kernel<Format, 96><<<grid, threads, 0, stream>>>(cache, projection, step);
      break;
    default:
      append_kernel<Format, 128><<<grid, threads, 0, stream>>>(cache, projection, step);
  }
  winnow::cuda::check_launch("append to the cache");
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

void launch_advance(const CacheView& cache, const std::int32_t* slots, int batch,
                    cudaStream_t stream) {
  advance_kernel<<<1, 128, 0, stream>>>(cache, slots, batch);
  winnow::cuda::check_launch("advance the cache");
}

void launch_set_length(const CacheView& cache, int slot, int length, cudaStream_t stream) {
  set_length_kernel<<<1, 1, 0, stream>>>(cache, slot, length);
  winnow::cuda::check_launch("advance the cache");
}

}  // namespace winnow::kvcache::cuda
