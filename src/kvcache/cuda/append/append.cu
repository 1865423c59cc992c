// One token per sequence. A block handles one sequence and one KV head with query_warps() + 2
// warps: one for each query head, one for the key, one for the value.
#include "base/cuda/launch.cuh"
#include "kvcache/cuda/append/append_kernels.h"
#include "kvcache/cuda/append/append_row.cuh"
#include "kvcache/cuda/append/limited_archive.cuh"
#include "kvcache/cuda/append/projection.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::kvcache::cuda {
namespace {

// Blocks per multiprocessor that registers suffice for: many sequences take several waves, and a
// wave takes as long as its dependent reads.
template <int D>
constexpr int kResidentBlocks = D > 0 ? 6 : 1;  // of the most threads; those of 4 query heads: 10

// `kLimited`: archives have a limit.
template <class Format, int D, bool kLimited>
__global__ void __launch_bounds__(kMostAppendThreads<D>, kResidentBlocks<D>)
    append_kernel(CacheView cache, Projection projection, DecodeAppend step) {
  using Code = typename Format::Code;
  using Place = EntryPlace<Code, D>;
  constexpr bool kScaled = Format::kLargest > 0.0F;
  const ops::cuda::HeadDim<D> dim(cache.head_dim);
  const int head = blockIdx.x;
  const int token = blockIdx.y;
  const int warp = threadIdx.x / 32;
  const int group = projection.group;
  const int queries = projection.query_warps();
  const int slot = step.slots[token];
  if (slot < 0) {  // the row pads the batch
    winnow::cuda::wait_for_predecessor();
    return;
  }
  const int length = cache.lengths[slot];
  const std::size_t row = cache.row(step.layer, slot, head);
  const std::size_t heads = projection.kv_heads * group;
  const std::uint32_t* archive = cache.archive_pages + row * cache.archive_stride;
  const std::uint32_t* window = cache.window_pages + row * cache.window_stride;
  const RowState state(cache, row, slot, length);
  const bool leaves = state.ring > 0 && length >= state.ring;
  LeavingEntry<Code, D> leaving(threadIdx.x, blockDim.x);
  if (leaves) {
    leaving.load(Place(cache, window, length % state.ring), kScaled);
  }

  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  ops::cuda::HeadVector<D> vector(dim, width_of(projection, dim));
  const float* qkv = step.qkv + row_of(projection, token, dim);
  const Decision decision = project<D>(projection, qkv, token, length, step.layer, head, vector);
  if constexpr (Format::kRotated) {
    vector.rotate();
  }
  if (warp < queries) {
    vector.store(step.queries + (token * heads + head * group + warp) * dim);
  }
  __shared__ Places places;
  if constexpr (kLimited) {
    Candidate highest;
    if (leaves && state.count >= archive_limit(cache, slot)) {
      highest = highest_of_archive(cache, row, state.count);
    }
    if (threadIdx.x == 0) {
      places = advance_limited_row(cache, row, slot, length, decision, state, highest);
    }
  } else if (threadIdx.x == 0) {
    places = advance_row(cache, row, slot, length, decision.taken, state);
    if (cache.positions != nullptr && state.ring == 0) {
      note_entry(cache, row, places.newest, length, 0.0F);
    }
  }
  __syncthreads();
  if (places.archived >= 0) {
    leaving.store(Place(cache, archive, places.archived), kScaled);
  }
  const Place newest(cache, state.ring > 0 ? window : archive, places.newest);
  if (warp == queries) {
    const float scale =
        vector.template encode<Format>([&](int d, Code code) { newest.key(d) = code; });
    if (kScaled && threadIdx.x % 32 == 0) {
      newest.key_scale() = __float2bfloat16_rn(scale);
    }
  } else if (warp == queries + 1) {
    const float scale =
        vector.template encode<Format>([&](int d, Code code) { newest.value(d) = code; });
    if (kScaled && threadIdx.x % 32 == 0) {
      newest.value_scale() = __float2bfloat16_rn(scale);
    }
  }
}

}  // namespace

void launch_append(ops::EntryFormat format, int head_dim, const CacheView& cache,
                   const Projection& projection, const DecodeAppend& step, cudaStream_t stream) {
  const dim3 grid(projection.kv_heads, step.batch);
  const int threads = (projection.query_warps() + 2) * 32;
  const auto launch = [&](const auto& kernel) {
    winnow::cuda::launch(kernel, grid, threads, 0, stream, true, cache, projection, step);
  };
  if (cache.window_logits != nullptr) {  // for any head dimension: other rules' kernels stay small
    ops::cuda::with_format(format, [&]<ops::EntryFormat kType>() {
      launch(append_kernel<ops::cuda::FormatOf<kType>, 0, true>);
    });
    return;
  }
  ops::cuda::with_any_shape(format, head_dim, has_own_append(head_dim, projection),
                            [&]<ops::EntryFormat kType, int D>() {
                              launch(append_kernel<ops::cuda::FormatOf<kType>, D, false>);
                            });
}

}  // namespace winnow::kvcache::cuda
