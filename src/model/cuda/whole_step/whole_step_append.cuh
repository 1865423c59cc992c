// Appends the tokens of a step (whole_step.h) in all layers, after the last of them: the warps that
// fetch inputs do it while the head is computed.
#pragma once

#include "kvcache/cuda/append/append_row.cuh"
#include "kvcache/cuda/append/next_pages.cuh"
#include "kvcache/cuda/append/projection.cuh"
#include "model/cuda/whole_step/whole_step_kernels.h"
#include "ops/cuda/linear/skinny_gemm_fetch.cuh"

namespace winnow::model::cuda {

/// The blocks share the rows (layer, sequence and KV head). In a block, one warp takes the
/// decision, one writes the key and one the value.
template <class Format, int D, bool kSeveral>
class WholeStepAppend {
 public:
  __device__ WholeStepAppend(const WholeStepArguments& arguments, const std::byte* published,
                             kvcache::cuda::Places* places)
      : a_(arguments),
        published_(published),
        places_(*places),
        thread_(static_cast<int>(threadIdx.x) % kThreads) {
    look_up(blockIdx.x);
  }

  template <class Program>
  __device__ void run(const Program& program) {
    wait_for_layers(program);
    const int of_layer = sequences() * a_.cache.kv_heads;
    for (int row = blockIdx.x; row < a_.layers * of_layer; row += program.blocks) {
      append(row / of_layer, row % a_.cache.kv_heads);
      if constexpr (kSeveral) {
        look_up(row + program.blocks);
      }
    }
  }

 private:
  using Code = typename Format::Code;
  using Place = kvcache::cuda::EntryPlace<Code, D>;
  static constexpr bool kScaled = Format::kLargest > 0.0F;
  static constexpr int kThreads = 32 * ops::cuda::kInputWarps;
  static_assert(ops::cuda::kInputWarps == 3 && kThreads >= kvcache::cuda::kLeastThreads &&
                32 * (ops::cuda::kProductWarps + ops::cuda::kEpilogueWarps) % kThreads == 0);

  static __device__ void synchronize() {
    ops::cuda::sync_named(ops::cuda::kAppendBarrier, kThreads);
  }

  [[nodiscard]] __device__ int sequences() const { return kSeveral ? a_.sequences : 1; }
  // Loads the sequence of a row; any sequence if `row` is past the last one.
  __device__ void look_up(int row) {
    sequence_ = kSeveral ? row / a_.cache.kv_heads % a_.sequences : 0;
    slot_ = a_.slots[sequence_];
    length_ = a_.cache.lengths[slot_];
  }

  // Waits for the last layer's output. All attention is complete then: each published value of one
  // sequence was computed together with the other sequences'.
  template <class Program>
  __device__ void wait_for_layers(const Program& program) const {
    const int last = program.count - 1;
    const auto* input = reinterpret_cast<const bf16*>(published_ + program.rows_at[last]);
    for (int i = 8 * thread_; i < program.layers[last].linear.weight.cols; i += 8 * kThreads) {
      while (ops::cuda::unpublished(ops::cuda::read_published(input + a_.place_of(0, i)))) {
      }
    }
    synchronize();
  }

  // Reads products that other blocks have published.
  struct Products {
    const float* from;
    __device__ float operator[](int i) const { return ops::cuda::read_published(from + i); }
  };

  __device__ void load(ops::cuda::HeadVector<D>& vector, int layer, int column) const {
    const WholeStepLayer& of_layer = a_.of_layer[layer];
    vector.load(Products{reinterpret_cast<const float*>(published_ + of_layer.products_at) +
                         (a_.products_of(sequence_) + column) * D},
                of_layer.bias != nullptr ? of_layer.bias + column * D : nullptr);
  }

  [[nodiscard]] __device__ ops::cuda::HeadNorm norm(const float* weight) const {
    return {weight != nullptr, weight, a_.eps};
  }

  // The decision, computed as in project() of projection.cuh.
  __device__ bool decides(int layer, int head) const {
    const kvcache::cuda::DecisionSource& source = a_.decision;
    if (source.is_drawn || source.kind == kvcache::cuda::DecisionSource::Kind::none) {
      return source.is_drawn && source.drawn(length_, layer, head);
    }
    ops::cuda::HeadVector<D> vector;
    load(vector, layer, (source.per_layer ? 0 : head) * a_.group);
    return source.decides(
        ops::cuda::decision_channel(vector, norm(a_.of_layer[layer].query_norm), source.channel));
  }

  __device__ void append(int layer, int head) {
    const kvcache::cuda::CacheView& cache = a_.cache;
    const std::size_t row = cache.row(layer, slot_, head);
    const std::uint32_t* archive = cache.archive_pages + row * cache.archive_stride;
    const std::uint32_t* window = cache.window_pages + row * cache.window_stride;
    const kvcache::cuda::RowState state(cache, row, slot_, length_);
    kvcache::cuda::LeavingEntry<Code, D> leaving(thread_, kThreads);
    if (state.ring > 0 && length_ >= state.ring) {
      leaving.load(Place(cache, window, length_ % state.ring), kScaled);
    }
    if (thread_ < 32) {
      const bool decision = decides(layer, head);
      if (thread_ == 0) {
        places_ = kvcache::cuda::advance_row(cache, row, slot_, length_, decision, state);
        if (a_.end.tokens != nullptr && cache.next_pages != nullptr &&
            kvcache::cuda::may_take_page(cache, row, length_ + 1)) {
          atomicAdd(&a_.end.next_pages[sequence_], 1);
        }
      }
    }
    synchronize();
    if (places_.archived >= 0) {
      leaving.store(Place(cache, archive, places_.archived), kScaled);
    }
    if (thread_ >= 32) {
      put(layer, head, thread_ < 64,
          Place(cache, state.ring > 0 ? window : archive, places_.newest));
    }
    synchronize();
  }

  // Writes the token's key or value, computed as in project().
  __device__ void put(int layer, int head, bool key, const Place& place) const {
    const int heads = a_.cache.kv_heads;
    ops::cuda::HeadVector<D> vector;
    load(vector, layer, heads * a_.group + (key ? 0 : heads) + head);
    if (key) {
      ops::cuda::transform_head(vector, norm(a_.of_layer[layer].key_norm),
                                ops::cuda::WholeRope{a_.angles + sequence_ * (D / 2)},
                                ops::cuda::NoChannel{});
    }
    const float scale = vector.template encode<Format>(
        [&](int d, Code code) { (key ? place.key(d) : place.value(d)) = code; });
    if (kScaled && thread_ % 32 == 0) {
      (key ? place.key_scale() : place.value_scale()) = __float2bfloat16_rn(scale);
    }
  }

  const WholeStepArguments& a_;
  const std::byte* published_;
  kvcache::cuda::Places& places_;
  int thread_;
  int sequence_ = 0;  // of the current row
  int slot_ = 0;
  int length_ = 0;
};

/// Ends a sequence's step after all blocks have appended and its token is chosen. Called by one
/// thread.
inline __device__ void end_sequence(const WholeStepArguments& a, int sequence, std::int32_t token) {
  const kvcache::cuda::CacheView& cache = a.cache;
  const int slot = a.slots[sequence];
  const std::int32_t next_pages = __ldcg(&a.end.next_pages[sequence]);
  if (sequence == 0) {
    *a.end.free_pages = __ldcg(cache.free_count);
  }
  if (cache.next_pages != nullptr) {
    cache.next_pages[slot] = next_pages;
  }
  ++cache.lengths[slot];
  a.end.next_pages[sequence] = 0;
  __threadfence_system();  // a reader that sees all tokens may rely on the rest
  a.end.tokens[sequence] = token;
}

}  // namespace winnow::model::cuda
