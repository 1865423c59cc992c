// The block that takes a row's token while others attend to the row's entries: it changes the cache
// and attends to what the token adds, the new entry and the one that leaves the window for the
// archive (DMC: the open entry and the one that closes).
#pragma once

#include <cuda_pipeline.h>

#include "base/cuda/launch.cuh"
#include "kvcache/cuda/append_row.cuh"
#include "kvcache/cuda/open_entry.cuh"
#include "kvcache/cuda/projection.cuh"
#include "kvcache/cuda/token_attention_kernels.h"
#include "ops/cuda/decode_run.cuh"

namespace winnow::kvcache::cuda {

/// Shared memory of the block.
template <class Format, int D>
struct NewcomerMemory {
  using Code = typename Format::Code;
  struct Entry {
    float key[D];
    float value[D];
  };
  alignas(16) float products[ops::cuda::kMostGroup + 2][D];  // of the queries, the key, the value
  Entry added;                                               // as attention sees them
  Entry leaving;
  Code codes[2][D / Format::kChannels];  // of the key and the value that are rounded
  __nv_bfloat16 scales[2];
  Places places;
  float omega;
  bool decision;
};

template <class Format, int D>
class Newcomer {
 public:
  using Memory = NewcomerMemory<Format, D>;

  __device__ Newcomer(const TokenArguments& arguments, int row, std::byte* memory)
      : a_(arguments),
        memory_(*reinterpret_cast<Memory*>(memory)),
        row_(row),
        token_(row / arguments.projection.kv_heads),
        head_(row % arguments.projection.kv_heads),
        planned_(arguments.attention.plan.rows[row]),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run() {
    if (planned_.state_row < 0) {  // the row pads the batch
      winnow::cuda::wait_for_predecessor();
      winnow::cuda::release_successor();
      write_nothing();
    } else if (a_.cache.open_weights != nullptr) {
      merge();
    } else {
      append();
    }
  }

 private:
  using Code = typename Format::Code;
  using Place = EntryPlace<Code, D>;
  using Vector = ops::cuda::HeadVector<D>;
  static constexpr bool kScaled = Format::kLargest > 0.0F;
  static constexpr int kEach =
      ops::cuda::kMostGroup / ops::cuda::kDecodeWarps;  // queries of a warp
  // The warps that take them, besides queries; the first one reads the decision.
  static constexpr int kKeyWarp = 2;
  static constexpr int kValueWarp = 3;

  // The archive of DMS and its kin: the token's entry goes to the window or, without one, to the
  // archive.
  __device__ void append() {
    const CacheView& cache = a_.cache;
    const int length = planned_.length;
    const std::size_t row = state_row();
    const std::uint32_t* archive = cache.archive_pages + row * cache.archive_stride;
    const std::uint32_t* window = cache.window_pages + row * cache.window_stride;
    const RowState state(cache, row, sequence(), length, planned_.archive_entries);
    LeavingEntry<Code, D, ops::cuda::kDecodeThreads> leaving;
    const bool leaves = planned_.leaving >= 0;
    const Place own(cache, planned_.leaving_page, planned_.leaving % ops::kPageEntries);
    if (leaves) {
      leaving.load(own, kScaled);
    }
    Vector queries[kEach];
    Vector half;
    start();
    take_products(length, queries, half);
    if (leaves) {
      leaving.template decode<Format>(memory_.leaving.key, memory_.leaving.value);
    }
    if (warp_ == kKeyWarp) {
      round(half, 0, memory_.added.key);
    } else if (warp_ == kValueWarp) {
      round(half, 1, memory_.added.value);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      memory_.places = advance_row(cache, row, sequence(), length, memory_.decision, state);
    }
    __syncthreads();
    const auto [newest, archived] = memory_.places;
    write_part(queries, archived >= 0);
    if (archived >= 0) {
      leaving.store(Place(cache, archive, archived), kScaled);
    }
    store_codes(leaves ? own : Place(cache, state.ring > 0 ? window : archive, newest));
  }

  // DMC: the token is merged into the open entry, or closes it and begins the next one.
  __device__ void merge() {
    const CacheView& cache = a_.cache;
    const int length = planned_.length;
    const std::size_t row = state_row();
    const int count = planned_.archive_entries;
    const float weight = cache.open_weights[row];
    const bool is_key = warp_ == kKeyWarp;
    const bool has_half = is_key || warp_ == kValueWarp;
    float* open = (is_key ? cache.open_keys : cache.open_values) + row * D;
    Vector before;
    if (has_half && length > 0) {
      before.load(open, nullptr);
      round(before, is_key ? 0 : 1, is_key ? memory_.leaving.key : memory_.leaving.value);
    }
    Vector queries[kEach];
    Vector half;
    start();
    take_products(length, queries, half);
    __syncthreads();
    const float omega = memory_.omega;
    const bool merges = memory_.decision && length > 0;
    const bool closes = length > 0 && !merges;
    if (threadIdx.x == 0) {
      memory_.places.archived = closes ? push_archive(cache, row, count) : -1;
      cache.open_weights[row] = merges ? __fadd_rn(weight, omega) : omega;
    }
    if (has_half) {
      if (merges) {
        half.mix(before, share_of(weight, omega));
      }
      half.store(open);
      half.store(is_key ? memory_.added.key : memory_.added.value);
    }
    __syncthreads();
    write_part(queries, closes);
    if (closes) {
      store_codes(
          Place(cache, cache.archive_pages + row * cache.archive_stride, memory_.places.archived));
    }
  }

  [[nodiscard]] __device__ int sequence() const {
    return planned_.state_row / a_.projection.kv_heads;
  }
  [[nodiscard]] __device__ std::size_t state_row() const {
    return a_.cache.row(a_.step.layer, sequence(), head_);
  }

  // Waits for the token's products and starts to copy them into shared memory.
  __device__ void start() {
    decided_ = decide_beforehand(a_.projection.decision, planned_.length, a_.step.layer, head_,
                                 memory_.decision, &memory_.omega);
    winnow::cuda::wait_for_predecessor();
    winnow::cuda::release_successor();
    copy_products();
  }

  // Of the products, once they have been copied: leaves the warp's queries, its key or value, and,
  // once the block's threads have met, the decision.
  __device__ void take_products(int position, Vector (&queries)[kEach], Vector& half) {
    const Projection& projection = a_.projection;
    const int group = projection.group;
    const int heads = projection.kv_heads * group;
    const HeadProjection<D> to_query(projection, projection.query_norm, token_);
    const HeadProjection<D> to_key(projection, projection.key_norm, token_);
    __pipeline_wait_prior(0);
    __syncthreads();
    const float* qkv = products();
    if (!decided_) {
      const int deciding = deciding_head(projection.decision, head_);
      const bool own = deciding == head_;
      decide<D>(projection, own ? memory_.products[0] : qkv + deciding * group * D,
                own ? memory_.products[group] : qkv + (heads + deciding) * D, token_, position,
                head_, memory_.decision, &memory_.omega);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (const int index = query_of(i); index < group) {
        to_query.take(memory_.products[index], head_ * group + index,
                      borrows_query(projection.decision, index), queries[i]);
        turn_as_entries(queries[i]);
      }
    }
    if (warp_ == kKeyWarp) {
      to_key.take(memory_.products[group], heads + head_, borrows_key(projection.decision), half);
      turn_as_entries(half);
    } else if (warp_ == kValueWarp) {
      HeadProjection<D>::load(projection, memory_.products[group + 1],
                              heads + projection.kv_heads + head_, half);
      turn_as_entries(half);
    }
  }

  // All of the row's products into shared memory.
  __device__ void copy_products() const {
    const float* qkv = products();
    const int kv_heads = a_.projection.kv_heads;
    const int group = a_.projection.group;
    for (int i = 4 * static_cast<int>(threadIdx.x); i < (group + 2) * D;
         i += 4 * ops::cuda::kDecodeThreads) {
      const int index = i / D;
      const int column = index < group ? head_ * group + index
                                       : kv_heads * group + (index - group) * kv_heads + head_;
      __pipeline_memcpy_async(&memory_.products[0][0] + i, qkv + column * D + i % D, 16);
    }
    __pipeline_commit();
  }

  // The token's, in memory.
  [[nodiscard]] __device__ const float* products() const {
    const std::size_t width = a_.projection.kv_heads * (a_.projection.group + 2);
    return a_.step.qkv + token_ * width * D;
  }

  static __device__ void turn_as_entries(Vector& vector) {
    if constexpr (Format::kRotated) {
      vector.rotate();
    }
  }

  // The query head that is the warp's i-th.
  [[nodiscard]] __device__ int query_of(int i) const {
    return warp_ + i * ops::cuda::kDecodeWarps;
  }

  // Rounds the key (half 0) or the value that a warp holds to codes; `seen` [D]: what they mean.
  __device__ void round(const Vector& vector, int half, float* seen) const {
    Code* codes = memory_.codes[half];
    const float scale = vector.template encode<Format>([&](int d, Code code) { codes[d] = code; });
    __syncwarp();
    for (int d = lane_; d < D; d += 32) {
      seen[d] = Format::decode(codes[d / Format::kChannels], d) * scale;
    }
    if (kScaled && lane_ == 0) {
      memory_.scales[half] = __float2bfloat16_rn(scale);
    }
  }

  // What round() has left, by all threads.
  __device__ void store_codes(const Place& place) const {
    for (int d = static_cast<int>(threadIdx.x); d < Place::kCodes; d += ops::cuda::kDecodeThreads) {
      place.key(d) = memory_.codes[0][d];
      place.value(d) = memory_.codes[1][d];
    }
    if (kScaled && threadIdx.x == 0) {
      place.key_scale() = memory_.scales[0];
      place.value_scale() = memory_.scales[1];
    }
  }

  // The part of a query head: what its scores are relative to and the sum of exponentials, and four
  // channels of the output by each lane.
  __device__ void write(int index, float2 sums, float4 quad) const {
    const auto& plan = a_.attention.plan;
    const int group = a_.attention.group;
    const std::size_t part = ops::cuda::token_part_of(plan.rows[row_].first_run, row_);
    if (lane_ < D / 4) {
      const int place = ops::cuda::part_place(group, index, lane_ / (D / 16), lane_ % (D / 16));
      reinterpret_cast<float4*>(plan.partial_out)[part * group * (D / 4) + place] = quad;
    }
    if (lane_ == 0) {
      plan.partial_sums[part * group + index] = sums;
    }
  }

  __device__ void write_nothing() const {
    for (int i = 0; query_of(i) < a_.attention.group; ++i) {
      write(query_of(i), {-INFINITY, 0.0F}, {});
    }
  }

  // Attention to the entry that is added and, if it `stays`, to the one that leaves.
  __device__ void write_part(const Vector (&queries)[kEach], bool stays) const {
    using ops::cuda::exp2_fast;
    const float scale = a_.attention.scale;
    const float bits = a_.attention.part_bits;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (query_of(i) >= a_.attention.group) {
        return;
      }
      const float score = queries[i].dot(memory_.added.key) * scale + bits;
      float4 quad = quad_of(memory_.added.value);
      float2 sums{score, 1.0F};
      if (stays) {
        const float other = queries[i].dot(memory_.leaving.key) * scale + bits;
        const float4 x = quad_of(memory_.leaving.value);
        sums.x = fmaxf(score, other);
        const float a = exp2_fast(score - sums.x);
        const float b = exp2_fast(other - sums.x);
        sums.y = a + b;
        quad = {a * quad.x + b * x.x, a * quad.y + b * x.y, a * quad.z + b * x.z,
                a * quad.w + b * x.w};
      }
      write(query_of(i), sums, quad);
    }
  }

  // The lane's four channels.
  [[nodiscard]] __device__ float4 quad_of(const float* value) const {
    return lane_ < D / 4 ? reinterpret_cast<const float4*>(value)[lane_] : float4{};
  }

  const TokenArguments& a_;
  Memory& memory_;
  int row_;
  int token_;
  int head_;
  const ops::cuda::DecodePlan::Row planned_;
  bool decided_ = false;
  int warp_;
  int lane_;
};

}  // namespace winnow::kvcache::cuda
