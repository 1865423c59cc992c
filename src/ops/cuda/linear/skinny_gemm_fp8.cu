#include "ops/cuda/linear/skinny_gemm.cuh"

namespace winnow::ops::cuda {

void launch_skinny_gemm_fp8(const SkinnyProgram& program, const SkinnyLaunch& launch) {
  launch_skinny_gemm<Fp8Weight>(program, launch);
}

}  // namespace winnow::ops::cuda
