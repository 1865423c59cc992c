#include "model/cuda/decode_step.cuh"

namespace winnow::model::cuda {

void launch_step_fp8(const StepProgram& program, const StepKind& kind,
                     std::span<const ops::cuda::RowsLayer> layers, cudaStream_t stream) {
  launch_step_for<ops::cuda::Fp8Weight>(program, kind, layers, stream);
}

}  // namespace winnow::model::cuda
