#include "kvcache/cuda/token_chain.cuh"

namespace winnow::kvcache::cuda {

void launch_token_chain_fp8(const ChainedKind& kind, const TokenProgram& program,
                            cudaStream_t stream) {
  launch_token_chain<ops::cuda::Fp8Weight>(kind, program, stream);
}

}  // namespace winnow::kvcache::cuda
