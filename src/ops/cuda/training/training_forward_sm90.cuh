// Training attention's forward on Hopper: shared by its warpgroups, and the code of the one that
// loads.
#pragma once

#include "ops/cuda/hopper_attention.cuh"
#include "ops/cuda/training/training_attention_kernels.h"

namespace winnow::ops::cuda {

template <int D_>
struct ForwardShape {
  using Pair = __nv_bfloat162;
  static constexpr int D = D_;
  static constexpr int kRows = forward_queries(D);
  static constexpr int kConsumers = kRows / 64;
  static constexpr int kBlock = kTrainingRows;  // at a time
  static constexpr int kStages = D == 64 ? 4 : 2;
  static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
  // Registers per thread.
  static constexpr int kConsumerRegisters = kConsumers == 2 ? 240 : 160;
  static constexpr int kProducerRegisters = kConsumers == 2 ? 24 : 32;
  static_assert(registers_suffice(kConsumers + 1,
                                  kConsumers* kConsumerRegisters + kProducerRegisters));
  static constexpr int kQueryBytes = kSlabs<D> * kRows * kSlabBytes;
  static constexpr int kPartBytes = kSlabs<D> * kBlock * kSlabBytes;
};

/// Consecutive queries of a head, over the blocks [begin, end) of keys.
struct ForwardTile {
  int head;  // -1: there are no more tiles
  int first;
  int begin;
  int end;
};

template <class S>
struct ForwardBias {
  float bias[S::kStages][S::kBlock];  // of the keys
};
template <class S>
struct ForwardControl : ForwardBias<S>, AttentionControl<S, ForwardTile> {};
template <class S>
using ForwardShared = AttentionShared<S, ForwardControl<S>>;

/// The next free tile. The last tiles of each document are the longest and come first.
template <class S>
__device__ ForwardTile take_tile(const TrainingForwardSm90& arguments) {
  const TrainingForward& forward = arguments.forward;
  const int heads = forward.kv_heads * forward.attention.group;
  const int tiles = (forward.tokens + S::kRows - 1) / S::kRows;
  const int index = atomicAdd(arguments.next_tile, 1);
  if (index >= tiles * heads) {
    return {-1, 0, 0, 0};
  }
  const int first = (tiles - 1 - index / heads) * S::kRows;
  return {index % heads, first, forward.attention.first_key[first] / S::kBlock,
          (min(first + S::kRows, forward.tokens) - 1) / S::kBlock + 1};
}

/// One thread: takes tiles and keeps the stages filled. Blocks of keys are loaded last to first.
template <class S>
__device__ void load_forward(const TrainingForwardSm90& arguments, const ForwardShared<S>& shared) {
  ForwardControl<S>& control = shared.control();
  const int group = arguments.forward.attention.group;
  const bool biased = arguments.bias != nullptr;
  constexpr int kBiasBytes = S::kBlock * sizeof(float);
  PipelineState<S::kStages> pipe;
  for (PipelineState<2> query;; query.next()) {
    control.query_empty[query.stage].wait(query.parity ^ 1);
    const ForwardTile tile = take_tile<S>(arguments);
    control.tile[query.stage] = tile;
    Barrier& query_full = control.query_full[query.stage];
    if (tile.head < 0) {
      query_full.arrive();
      return;
    }
    query_full.arrive_expecting(S::kQueryBytes);
    copy_tile<S::D>(query_full, shared.query(query.stage), S::kRows, arguments.queries, tile.first,
                    tile.head);
    const int kv_head = tile.head / group;
    for (int block = tile.end - 1; block >= tile.begin; --block, pipe.next()) {
      const int key = block * S::kBlock;
      Barrier& key_full = control.key_full[pipe.stage];
      control.key_empty[pipe.stage].wait(pipe.parity ^ 1);
      key_full.arrive_expecting(S::kPartBytes + (biased ? kBiasBytes : 0));
      copy_tile<S::D>(key_full, shared.keys(pipe.stage), S::kBlock, arguments.keys, key, kv_head);
      if (biased) {
        const float* from = arguments.bias + std::size_t(kv_head) * arguments.padded_tokens + key;
        key_full.copy(reinterpret_cast<std::byte*>(control.bias[pipe.stage]),
                      reinterpret_cast<const std::byte*>(from), kBiasBytes);
      }
      Barrier& value_full = control.value_full[pipe.stage];
      control.value_empty[pipe.stage].wait(pipe.parity ^ 1);
      value_full.arrive_expecting(S::kPartBytes);
      copy_tile<S::D>(value_full, shared.values(pipe.stage), S::kBlock, arguments.values, key,
                      kv_head);
    }
  }
}

}  // namespace winnow::ops::cuda
