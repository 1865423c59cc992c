#include "ops/cuda/linear/linear_rows.cuh"

namespace winnow::ops::cuda {

void launch_linear_rows_bf16(const RowsProgram& program, const RowsLaunch& launch) {
  launch_linear_rows<Bf16Weight>(program, launch);
}

}  // namespace winnow::ops::cuda
