#include "kvcache/cuda/token_chain.cuh"

namespace winnow::kvcache::cuda {

void launch_token_chain_int4(ops::EntryFormat format, int head_dim, const TokenProgram& program,
                             cudaStream_t stream) {
  launch_token_chain<ops::cuda::Int4Weight>(format, head_dim, program, stream);
}

}  // namespace winnow::kvcache::cuda
