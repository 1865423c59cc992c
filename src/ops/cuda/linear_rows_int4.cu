#include "ops/cuda/linear_rows.cuh"

namespace winnow::ops::cuda {

void launch_linear_rows_int4(const RowsProgram& program, int shared_bytes,
                             const RowsLaunch& launch) {
  launch_linear_rows<Int4Weight>(program, shared_bytes, launch);
}

}  // namespace winnow::ops::cuda
