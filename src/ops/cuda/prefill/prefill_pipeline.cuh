// Shared by the warpgroups of Hopper's prefill attention, and the code of the one that loads.
#pragma once

#include <cuda_pipeline.h>

#include "ops/cuda/hopper_attention.cuh"
#include "ops/cuda/prefill/prefill_tile.cuh"

namespace winnow::ops::cuda {

inline constexpr int kLoaders = 96;  // threads that load queries

enum NamedBarrier { kLoaderBarrier = 1, kFirstIssue };

template <class Pair_, int D_>
struct Shape {
  using Pair = Pair_;
  static constexpr int D = D_;
  static constexpr int kConsumers = D == 64 ? 3 : 2;
  static constexpr int kBlock = 128;  // places of the list at a time
  static constexpr int kStages = D == 64 ? 4 : 2;
  static constexpr int kRows = 64 * kConsumers;
  static_assert(kRows == prefill_tile_rows(D, PrefillKernel::gathered));
  static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
  // Registers per thread.
  static constexpr int kConsumerRegisters = kConsumers == 2 ? 224 : 160;
  static constexpr int kProducerRegisters = kConsumers == 2 ? 56 : 32;
  static_assert(registers_suffice(kConsumers + 1,
                                  kConsumers* kConsumerRegisters + kProducerRegisters));
  static constexpr int kQueryBytes = kSlabs<D> * kRows * kSlabBytes;
  static constexpr int kPartBytes = kSlabs<D> * kBlock * kSlabBytes;
};

template <class S>
using Control = AttentionControl<S, PrefillTile>;
template <class S>
using Shared = AttentionShared<S, Control<S>>;

/// Loads a tile's queries into shared memory, all in flight together. Each loader then converts the
/// chunks that it has loaded to operands.
template <class S>
__device__ void load_query_tile(const PrefillArguments& arguments, const PrefillTile& tile,
                                int thread, std::byte* to) {
  constexpr int kChunks = S::D / 8;
  constexpr int kStep = kLoaders / kChunks;  // rows from one of a loader's chunks to the next
  const int group = arguments.group;
  const int inverse = (1 << 16) / group + 1;
  const int rows = tile.tokens * group;
  const int c = thread % kChunks;
  const int first = thread < kStep * kChunks ? thread / kChunks : S::kRows;
  const bf16* from = arguments.chunk.query + QueryRow(arguments, tile, 0, S::D).offset + 8 * c;
  to += c / 8 * (S::kRows * kSlabBytes);
  const auto place_of = [&](int row) { return to + row * kSlabBytes + (c % 8 ^ row % 8) * 16; };
#pragma unroll 4
  for (int i = first; i < S::kRows; i += kStep) {
    const int row = min(i, rows - 1);       // surplus rows repeat the last
    const int token = row * inverse >> 16;  // row / group
    const int offset = (token * (arguments.kv_heads - 1) * group + row) * S::D;
    __pipeline_memcpy_async(place_of(i), from + offset, 16);
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
  using Pair = typename S::Pair;
  if constexpr (std::is_same_v<Pair, __half2>) {
#pragma unroll 4
    for (int i = first; i < S::kRows; i += kStep) {
      auto& x = *reinterpret_cast<uint4*>(place_of(i));
      x = {from_bf16<Pair>(x.x), from_bf16<Pair>(x.y), from_bf16<Pair>(x.z), from_bf16<Pair>(x.w)};
    }
  }
}

/// The loaders: take tiles and load their queries.
template <class S>
__device__ void load_queries(const PrefillArguments& arguments, const Shared<S>& shared) {
  Control<S>& control = shared.control();
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup - (kWarpgroup - kLoaders);
  for (PipelineState<2> pipe;; pipe.next()) {
    control.query_empty[pipe.stage].wait(pipe.parity ^ 1);
    if (thread == 0) {
      PrefillTile& taken = control.tile[pipe.stage];
      const int index = atomicAdd(arguments.next_tile, 1);
      if (index < arguments.tiles) {
        taken = PrefillTile(arguments, arguments.tile_order[index]);
      } else {
        taken.head = -1;
      }
    }
    sync_named(kLoaderBarrier, kLoaders);
    const PrefillTile tile = control.tile[pipe.stage];
    if (tile.head >= 0) {
      load_query_tile<S>(arguments, tile, thread, shared.query(pipe.stage));
      fence_async_proxy();
    }
    control.query_full[pipe.stage].arrive();
    if (tile.head < 0) {
      return;
    }
  }
}

/// Rows [first, first + count) of `from`, all slabs, into rows of a stage from `to_row` on.
template <class S>
__device__ void copy_rows(Barrier& barrier, std::byte* to, int to_row, const std::byte* from,
                          int first, int count, std::size_t slab_bytes) {
#pragma unroll
  for (int slab = 0; slab < kSlabs<S::D>; ++slab) {
    barrier.copy(to + (slab * S::kBlock + to_row) * kSlabBytes,
                 from + slab * slab_bytes + std::size_t(first) * kSlabBytes, count * kSlabBytes);
  }
}

/// The places [place, place + kBlock) of a tile's list: rows of the archive, of the band, or both.
template <class S>
__device__ void copy_part(const PrefillArguments& arguments, const PrefillTile& tile, int part,
                          int place, std::byte* to, Barrier& barrier) {
  const GatheredRows& rows = arguments.rows;
  const std::byte* from =
      rows.memory + std::size_t(tile.head * 2 + part) * kSlabs<S::D> * rows.slab_bytes();
  const int archived = min(max(tile.archive - place, 0), S::kBlock);
  barrier.arrive_expecting(S::kPartBytes);
  if (archived > 0) {
    copy_rows<S>(barrier, to, 0, from, place, archived, rows.slab_bytes());
  }
  if (archived < S::kBlock) {
    copy_rows<S>(barrier, to, archived, from, tile.row_at(place + archived, rows),
                 S::kBlock - archived, rows.slab_bytes());
  }
}

/// One thread: keeps the stages filled. A list's blocks are loaded last to first.
template <class S>
__device__ void load_entries(const PrefillArguments& arguments, const Shared<S>& shared) {
  Control<S>& control = shared.control();
  PipelineState<S::kStages> pipe;
  for (PipelineState<2> query;; query.next()) {
    control.query_full[query.stage].wait(query.parity);
    const PrefillTile tile = control.tile[query.stage];
    control.query_empty[query.stage].arrive();
    if (tile.head < 0) {
      return;
    }
    for (int block = (tile.length - 1) / S::kBlock; block >= 0; --block, pipe.next()) {
      const int place = block * S::kBlock;
      control.key_empty[pipe.stage].wait(pipe.parity ^ 1);
      copy_part<S>(arguments, tile, 0, place, shared.keys(pipe.stage),
                   control.key_full[pipe.stage]);
      control.value_empty[pipe.stage].wait(pipe.parity ^ 1);
      copy_part<S>(arguments, tile, 1, place, shared.values(pipe.stage),
                   control.value_full[pipe.stage]);
    }
  }
}

}  // namespace winnow::ops::cuda
