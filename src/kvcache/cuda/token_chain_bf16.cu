#include "kvcache/cuda/token_chain.cuh"

namespace winnow::kvcache::cuda {

void launch_token_chain_bf16(const ChainedKind& kind, const TokenProgram& program,
                             cudaStream_t stream) {
  launch_token_chain<ops::cuda::Bf16Weight>(kind, program, stream);
}

}  // namespace winnow::kvcache::cuda
