#include "ops/cuda/linear_rows.cuh"

namespace winnow::ops::cuda {

void launch_linear_rows_bf16(const RowsArguments& arguments, RowsLaunch launch) {
  launch_linear_rows<Bf16Weight>(arguments, launch);
}

}  // namespace winnow::ops::cuda
