// Training attention's backward on Hopper: shared by its warpgroups, and the code of the one that
// loads.
#pragma once

#include "ops/cuda/hopper_tile.cuh"
#include "ops/cuda/score_tile.cuh"
#include "ops/cuda/training/training_attention_kernels.h"

namespace winnow::ops::cuda {

template <int D_>
struct BackwardShape {
  using Pair = __nv_bfloat162;
  static constexpr int D = D_;
  static constexpr int kConsumers = 2;
  static constexpr int kKeys = 64 * kConsumers;
  static constexpr int kQueries = backward_queries(D);  // at a time
  static constexpr int kStages = 2;
  static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
  // Registers per thread.
  static constexpr int kConsumerRegisters = 240;
  static constexpr int kProducerRegisters = 24;
  static_assert(registers_suffice(kConsumers + 1,
                                  kConsumers* kConsumerRegisters + kProducerRegisters));
  static constexpr int kKeyBytes = kSlabs<D> * kKeys * kSlabBytes;
  static constexpr int kQueryBytes = kSlabs<D> * kQueries * kSlabBytes;
  static constexpr int kDqueryBytes = kQueries * D * 4;
  static constexpr int kScoreBytes = kQueries / 64 * kKeys * kSlabBytes;
  static_assert(kTrainingRows % kQueries == 0 && kTrainingRows == kKeys);
};

template <class S>
struct BackwardControl {
  QuerySums sums[S::kStages][S::kQueries];
  Barrier keys_full;
  Barrier dqueries_empty;
  Barrier query_full[S::kStages];
  Barrier query_empty[S::kStages];
  Barrier dout_full[S::kStages];
  Barrier dout_empty[S::kStages];
  int ticket;
};

template <class S>
struct BackwardShared {
  std::byte* memory;
  __device__ std::byte* keys() const { return memory; }
  __device__ std::byte* values() const { return keys() + S::kKeyBytes; }
  __device__ std::byte* query(int stage) const {
    return values() + S::kKeyBytes + stage * S::kQueryBytes;
  }
  __device__ std::byte* dout(int stage) const { return query(S::kStages + stage); }
  /// Gradients of scores [keys, queries].
  __device__ std::byte* dscores(int slot) const {
    return query(2 * S::kStages) + slot * S::kScoreBytes;
  }
  /// Gradients of queries in register layout, [consumers][8][kWarpgroup][4].
  __device__ float* dqueries() const { return reinterpret_cast<float*>(dscores(2)); }
  __device__ BackwardControl<S>& control() const {
    return *reinterpret_cast<BackwardControl<S>*>(dscores(2) + S::kDqueryBytes);
  }
  static constexpr int kAlignment = 1024;
  static constexpr int kBytes = 2 * S::kKeyBytes + 2 * S::kStages * S::kQueryBytes +
                                2 * S::kScoreBytes + S::kDqueryBytes +
                                static_cast<int>(sizeof(BackwardControl<S>)) + kAlignment;
};

template <class S>
__device__ void init(BackwardControl<S>& control) {
  constexpr int kWarps = 4 * S::kConsumers;
  control.keys_full.init(1);
  control.dqueries_empty.init(1);
  for (int i = 0; i < S::kStages; ++i) {
    control.query_full[i].init(1);
    control.query_empty[i].init(kWarps);
    control.dout_full[i].init(1);
    control.dout_empty[i].init(kWarps);
  }
  fence_async_proxy();
}

/// A block's work: a block of keys of a KV head, over blocks of queries from the last
/// that sees any of them to the first, and for each block over the heads of the group.
struct BackwardItem {
  int kv_head;
  int first_key;
  int first_block;  // of queries
  int end_block;
  int own_from;  // queries from here on see no keys before this block

  template <class S>
  static __device__ BackwardItem of(const TrainingBackwardSm90& arguments, int ticket, S) {
    const TrainingBackward& backward = arguments.backward;
    BackwardItem item;
    item.kv_head = ticket % backward.kv_heads;
    item.first_key = ticket / backward.kv_heads * S::kKeys;
    const int last = min(item.first_key + S::kKeys, backward.tokens) - 1;
    item.first_block = item.first_key / S::kQueries;
    item.end_block = (arguments.document_end[last] - 1) / S::kQueries + 1;
    item.own_from = item.first_key == 0 ? 0 : arguments.document_end[item.first_key - 1];
    return item;
  }
};

/// One thread: keeps the stages filled.
template <class S>
__device__ void load_backward(const TrainingBackwardSm90& arguments, const BackwardItem& item,
                              const BackwardShared<S>& shared) {
  BackwardControl<S>& control = shared.control();
  const TrainingBackward& backward = arguments.backward;
  constexpr int kSumBytes = S::kQueries * sizeof(QuerySums);
  control.keys_full.arrive_expecting(2 * S::kKeyBytes);
  copy_tile<S::D>(control.keys_full, shared.keys(), S::kKeys, arguments.keys, item.first_key,
                  item.kv_head);
  copy_tile<S::D>(control.keys_full, shared.values(), S::kKeys, arguments.values, item.first_key,
                  item.kv_head);
  PipelineState<S::kStages> pipe;
  const int group = backward.attention.group;
  for (int block = item.end_block - 1; block >= item.first_block; --block) {
    const int query = block * S::kQueries;
    for (int g = 0; g < group; ++g, pipe.next()) {
      const int head = item.kv_head * group + g;
      Barrier& query_full = control.query_full[pipe.stage];
      control.query_empty[pipe.stage].wait(pipe.parity ^ 1);
      query_full.arrive_expecting(S::kQueryBytes);
      copy_tile<S::D>(query_full, shared.query(pipe.stage), S::kQueries, arguments.queries, query,
                      head);
      Barrier& dout_full = control.dout_full[pipe.stage];
      control.dout_empty[pipe.stage].wait(pipe.parity ^ 1);
      dout_full.arrive_expecting(S::kQueryBytes + kSumBytes);
      dout_full.copy(reinterpret_cast<std::byte*>(control.sums[pipe.stage]),
                     reinterpret_cast<const std::byte*>(
                         backward.sums + std::size_t(head) * backward.padded_tokens + query),
                     kSumBytes);
      copy_tile<S::D>(dout_full, shared.dout(pipe.stage), S::kQueries, arguments.dout, query, head);
    }
  }
}

}  // namespace winnow::ops::cuda
