#include "kvcache/cuda/token_chain.cuh"

namespace winnow::kvcache::cuda {

void launch_token_chain_int8(const ChainedKind& kind, const TokenProgram& program,
                             cudaStream_t stream) {
  launch_token_chain<ops::cuda::Int8Weight>(kind, program, stream);
}

}  // namespace winnow::kvcache::cuda
