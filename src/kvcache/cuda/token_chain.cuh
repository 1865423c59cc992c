// Launching a token's chain of layers with weights of one format.
#pragma once

#include "kvcache/cuda/chained_attention.cuh"
#include "ops/cuda/linear_rows.cuh"

namespace winnow::kvcache::cuda {

template <class Format>
void launch_token_chain(ops::EntryFormat format, int head_dim, const TokenProgram& program,
                        cudaStream_t stream) {
  with_chained_shape(format, head_dim, [&]<ops::EntryFormat kType, int D>() {
    ops::cuda::launch_rows<Format, 1, ChainedAttention<kType, D>>(program, {stream, true});
  });
}

}  // namespace winnow::kvcache::cuda
