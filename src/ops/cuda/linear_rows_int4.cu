#include "ops/cuda/linear_rows.cuh"

namespace winnow::ops::cuda {

void launch_linear_rows_int4(const RowsArguments& arguments, RowsLaunch launch) {
  launch_linear_rows<Int4Weight>(arguments, launch);
}

}  // namespace winnow::ops::cuda
