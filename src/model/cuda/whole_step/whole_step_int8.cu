#include "model/cuda/whole_step/whole_step_launch.cuh"

namespace winnow::model::cuda {

void launch_whole_step_int8(const WholeStepKind& kind, const WholeStepProgram& program,
                            cudaStream_t stream) {
  launch_whole_step<ops::cuda::Int8Weight>(kind, program, stream);
}

}  // namespace winnow::model::cuda
