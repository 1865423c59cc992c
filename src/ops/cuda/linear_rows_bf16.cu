#include "ops/cuda/linear_rows.cuh"

namespace winnow::ops::cuda {

void launch_linear_rows_bf16(const RowsProgram& program, int shared_bytes,
                             const RowsLaunch& launch) {
  launch_linear_rows<Bf16Weight>(program, shared_bytes, launch);
}

}  // namespace winnow::ops::cuda
