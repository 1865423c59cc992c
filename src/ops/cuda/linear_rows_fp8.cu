#include "ops/cuda/linear_rows.cuh"

namespace winnow::ops::cuda {

void launch_linear_rows_fp8(const RowsArguments& arguments, RowsLaunch launch) {
  launch_linear_rows<Fp8Weight>(arguments, launch);
}

}  // namespace winnow::ops::cuda
