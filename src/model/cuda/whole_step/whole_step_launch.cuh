// Launching a whole step with weights of one format.
#pragma once

#include "model/cuda/whole_step/whole_step.cuh"
#include "ops/cuda/linear/skinny_gemm.cuh"

namespace winnow::model::cuda {

template <class Format>
void launch_whole_step(const WholeStepKind& kind, const WholeStepProgram& program,
                       cudaStream_t stream) {
  with_whole_step_shape(kind.format, kind.head_dim, [&]<ops::EntryFormat kType, int D>() {
    const ops::cuda::SkinnyLaunch launch{stream, true};
    if constexpr (D <= kMostSeveralHeadDim) {
      if (program.rows > 1) {
        using Step = WholeStepOrder<kType, D, true, true>;
        return ops::cuda::launch_skinny_kernel<Format, kMostWholeStepSequences, Step>(program,
                                                                                      launch);
      }
    }
    if (kind.long_rows) {
      using Step = WholeStepOrder<kType, D, true, false>;
      ops::cuda::launch_skinny_kernel<Format, 1, Step>(program, launch);
    } else {
      using Step = WholeStepOrder<kType, D, false, false>;
      ops::cuda::launch_skinny_kernel<Format, 1, Step>(program, launch);
    }
  });
}

}  // namespace winnow::model::cuda
