// Launching a token's chain of layers with weights of one format.
#pragma once

#include "kvcache/cuda/chained_attention.cuh"
#include "ops/cuda/linear_rows.cuh"

namespace winnow::kvcache::cuda {

template <class Format>
void launch_token_chain(const ChainedKind& kind, const TokenProgram& program, cudaStream_t stream) {
  with_chained_shape(kind.format, kind.head_dim, [&]<ops::EntryFormat kType, int D>() {
    const ops::cuda::RowsLaunch launch{stream, true};
    if (kind.long_rows) {
      ops::cuda::launch_rows<Format, 1, ChainedAttention<kType, D, true>>(program, launch);
    } else {
      ops::cuda::launch_rows<Format, 1, ChainedAttention<kType, D, false>>(program, launch);
    }
  });
}

}  // namespace winnow::kvcache::cuda
