#include "ops/cuda/linear/skinny_gemm.cuh"

namespace winnow::ops::cuda {

void launch_skinny_gemm_int8(const SkinnyProgram& program, const SkinnyLaunch& launch) {
  launch_skinny_gemm<Int8Weight>(program, launch);
}

}  // namespace winnow::ops::cuda
