// The layout of a block's shared memory for a whole step's attention (whole_step_attention.cuh).
#pragma once

#include "kvcache/cuda/append/append_row.cuh"
#include "model/cuda/whole_step/whole_step_kernels.h"
#include "ops/cuda/decode/page_stream.cuh"
#include "ops/cuda/decode/warp_attention.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::model::cuda {

/// A sequence's state before the step.
struct WholeStepSequence {
  int slot = 0;
  int length = 0;
  int ring = 0;            // entries of a full window; 0: it has none
  int window_entries = 0;  // entries that the window has now

  WholeStepSequence() = default;
  __device__ WholeStepSequence(const WholeStepArguments& arguments, int sequence)
      : slot(arguments.slots[sequence]),
        length(arguments.cache.lengths[slot]),
        ring(kvcache::cuda::ring_of(arguments.cache, slot)),
        window_entries(min(length, ring)) {}
};

/// Values of a warp's share of a row (one KV head of one layer) that are rarely needed.
struct WholeStepShare {
  int layer = 0;
  int archived = 0;  // entries of the row's archive
  int first = 0;     // the warp's first page
  int hidden = -1;   // hidden slot of the window's ring; -1: none
};

/// Common types of a whole step's attention. With short rows a warp has a page or two and holds one
/// at a time, since more would take memory from the weights. With long rows it also fetches the
/// next page, and if there are registers for a page's values (kReadsAhead), it reads a page into
/// them and releases its memory at once.
template <ops::EntryFormat kType, int D, bool kLongRows>
struct WholeStepShape {
  using Codes = ops::cuda::CodesOf<kType>;
  using Format = ops::cuda::FormatOf<kType>;
  static constexpr int kWarps = kAttentionWarps;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kPageBytes =
      ops::cuda::PageAddress{D, ops::cuda::kCodeBits<Codes>}.page_bytes();
  static constexpr int kStages = kLongRows ? 2 : 1;
  static constexpr bool kReadsAhead = kLongRows && D <= 64;
  using Stream = ops::cuda::PageStream<kPageBytes, 1, kStages>;
  using StreamState = ops::cuda::StageState<1>;
  using Attention = ops::cuda::WarpAttention<Codes, D, 1, ops::cuda::SharedQuery>;
};

/// The offsets of all parts, in bytes.
template <ops::EntryFormat kType, int D, bool kLongRows>
struct WholeStepMemory {
  using Shape = WholeStepShape<kType, D, kLongRows>;
  static constexpr int kFloat = sizeof(float);

  /// [warps, stages] pages; after they have been read, the warp's part: outputs, then sums.
  static constexpr int kPages = 0;
  static constexpr int kWarpPages = Shape::kStages * Shape::kPageBytes;
  /// A page for the token's own entry.
  static constexpr int kNewEntry = kPages + Shape::kWarps * kWarpPages;
  /// The queries as the products' operands: [steps, lanes] uint4.
  static constexpr int kOperands = (kNewEntry + Shape::kPageBytes + 15) / 16 * 16;
  /// [2, D] float norm weights of queries and keys.
  static constexpr int kNorms = kOperands + ops::cuda::kQuerySteps<D> * 32 * int{sizeof(uint4)};
  /// [D / 2] float2 rotary angles.
  static constexpr int kAngles = kNorms + 2 * D * kFloat;
  /// WholeStepArguments: reading kernel parameters takes longer.
  static constexpr int kArguments = kAngles + D / 2 * int{sizeof(float2)};
  /// WholeStepSequence.
  static constexpr int kSequence = (kArguments + int{sizeof(WholeStepArguments)} + 15) / 16 * 16;
  /// A pointer to the kernel's published memory.
  static constexpr int kPublished = kSequence + (int{sizeof(WholeStepSequence)} + 15) / 16 * 16;
  /// kvcache::cuda::Places.
  static constexpr int kAppended = kPublished + 16;
  /// [warps] WholeStepShare.
  static constexpr int kShares = (kAppended + int{sizeof(kvcache::cuda::Places)} + 15) / 16 * 16;
  /// [warps, stages] StreamState.
  static constexpr int kStates = kShares + Shape::kWarps * int{sizeof(WholeStepShare)};
  /// The token's q, k, v of the head: [group + 2, D] float.
  static constexpr int kRaw =
      (kStates + Shape::kWarps * Shape::kStages * int{sizeof(typename Shape::StreamState)} + 15) /
      16 * 16;
  /// [group, D] float queries.
  static __host__ __device__ constexpr int queries(int group) {
    return kRaw + (group + 2) * D * kFloat;
  }
  static __host__ __device__ constexpr int bytes(int group) {
    return queries(group) + group * D * kFloat;
  }
  // A part fits into the memory of a page.
  static_assert(kMostGroupChannels * sizeof(float) + kMostWholeStepGroup * sizeof(float2) <=
                Shape::kPageBytes);
};

}  // namespace winnow::model::cuda
