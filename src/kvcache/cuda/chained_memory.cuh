// A block's shared memory for the attention of a chain (chained_attention.cuh).
#pragma once

#include "kvcache/cuda/append_row.cuh"
#include "kvcache/cuda/token_chain_kernels.h"
#include "ops/cuda/kernel_shape.cuh"
#include "ops/cuda/page_stream.cuh"
#include "ops/cuda/warp_attention.cuh"

namespace winnow::kvcache::cuda {

/// What the classes of a chain's attention agree on.
template <ops::EntryFormat kType, int D>
struct ChainedShape {
  using Codes = ops::cuda::CodesOf<kType>;
  using Format = ops::cuda::FormatOf<kType>;
  static constexpr int kWarps = kChainedWarps;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kPageBytes =
      ops::cuda::PageAddress{D, ops::cuda::kCodeBits<Codes>}.page_bytes();
  // A page of a warp at a time: what more of them take would be taken from the weights.
  using Stream = ops::cuda::PageStream<kPageBytes, 1, 1>;
  using StreamState = ops::cuda::StageState<1>;
  using Attention = ops::cuda::WarpAttention<Codes, D, 1, ops::cuda::SharedQuery>;
};

/// Where everything lies, in bytes.
template <ops::EntryFormat kType, int D>
struct ChainedMemory {
  using Shape = ChainedShape<kType, D>;

  int newcomer;   // a page for the token's own entry
  int raw;        // the token's q, k, v of the head: [group + 2, D] float
  int queries;    // [group, D] float
  int operands;   // what products take of them: [steps, lanes] uint4
  int norms;      // [2, D] float of queries, of keys
  int angles;     // [D / 2] float2
  int arguments;  // ChainedArguments: a kernel's parameters take longer to read
  int appended;   // Places
  int states;     // [warps]
  int pages;      // [warps]; when they have been read, the warp's part: outputs, then sums
  int bytes;

  __host__ __device__ explicit ChainedMemory(int group) {
    constexpr int kFloat = sizeof(float);
    newcomer = 0;
    raw = Shape::kPageBytes;
    queries = raw + (group + 2) * D * kFloat;
    operands = queries + group * D * kFloat;
    norms = operands + ops::cuda::kQuerySteps<D> * 32 * int{sizeof(uint4)};
    angles = norms + 2 * D * kFloat;
    arguments = angles + D / 2 * int{sizeof(float2)};
    appended = (arguments + int{sizeof(ChainedArguments)} + 15) / 16 * 16;
    states = (appended + int{sizeof(Places)} + 15) / 16 * 16;
    pages = (states + Shape::kWarps * int{sizeof(typename Shape::StreamState)} + 127) / 128 * 128;
    bytes = pages + Shape::kWarps * Shape::kPageBytes;
  }
  // A part fits where a page was.
  static_assert(kMostGroupChannels * sizeof(float) + kMostChainedGroup * sizeof(float2) <=
                Shape::kPageBytes);
};

/// The sequence of the chain, as the step finds it.
struct ChainedSequence {
  int slot = 0;
  int length = 0;
  int ring = 0;            // entries of its window when that is full; 0: it has none
  int window_entries = 0;  // that it has

  ChainedSequence() = default;
  __device__ explicit ChainedSequence(const ChainedArguments& arguments)
      : slot(arguments.slots[0]),
        length(arguments.cache.lengths[slot]),
        ring(ring_of(arguments.cache, slot)),
        window_entries(min(length, ring)) {}
};

}  // namespace winnow::kvcache::cuda
