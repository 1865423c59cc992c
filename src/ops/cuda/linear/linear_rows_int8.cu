#include "ops/cuda/linear/linear_rows.cuh"

namespace winnow::ops::cuda {

void launch_linear_rows_int8(const RowsProgram& program, const RowsLaunch& launch) {
  launch_linear_rows<Int8Weight>(program, launch);
}

}  // namespace winnow::ops::cuda
