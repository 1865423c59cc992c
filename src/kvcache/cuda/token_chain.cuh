// Launching a chain of layers with weights of one format.
#pragma once

#include "kvcache/cuda/chained_attention.cuh"
#include "ops/cuda/linear/linear_rows.cuh"

namespace winnow::kvcache::cuda {

template <class Format>
void launch_token_chain(const ChainedKind& kind, const TokenProgram& program, cudaStream_t stream) {
  with_chained_shape(kind.format, kind.head_dim, [&]<ops::EntryFormat kType, int D>() {
    const ops::cuda::RowsLaunch launch{stream, true};
    if constexpr (D <= kMostSeveralHeadDim) {
      if (program.rows > 1) {
        using Attention = ChainedAttention<kType, D, true, true>;
        return ops::cuda::launch_rows<Format, kMostChainedSequences, Attention>(program, launch);
      }
    }
    if (kind.long_rows) {
      using Attention = ChainedAttention<kType, D, true, false>;
      ops::cuda::launch_rows<Format, 1, Attention>(program, launch);
    } else {
      using Attention = ChainedAttention<kType, D, false, false>;
      ops::cuda::launch_rows<Format, 1, Attention>(program, launch);
    }
  });
}

}  // namespace winnow::kvcache::cuda
