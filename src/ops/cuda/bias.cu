#include <algorithm>

#include "base/cuda/device.h"
#include "ops/cuda/bias.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kColumns = 32;
constexpr int kRows = 8;           // added at a time
constexpr int kRowsOfBlock = 512;  // rows that a block adds

__global__ void __launch_bounds__(kColumns* kRows)
    column_sums_kernel(float* sums, const bf16* x, int rows, int cols, int stride) {
  __shared__ float parts[kRows][kColumns];
  const int col = blockIdx.x * kColumns + threadIdx.x;
  const int end = min(rows, (static_cast<int>(blockIdx.y) + 1) * kRowsOfBlock);
  float sum = 0.0F;
  for (int row = blockIdx.y * kRowsOfBlock + threadIdx.y; col < cols && row < end; row += kRows) {
    sum += __uint_as_float(static_cast<unsigned>(x[std::size_t(row) * stride + col].bits) << 16);
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && col < cols) {
    for (int i = 1; i < kRows; ++i) {
      sum += parts[i][threadIdx.x];
    }
    atomicAdd(sums + col, sum);
  }
}

}  // namespace

void add_column_sums(float* sums, const bf16* x, int rows, int cols, int stride,
                     cudaStream_t stream) {
  const dim3 grid((cols + kColumns - 1) / kColumns, (rows + kRowsOfBlock - 1) / kRowsOfBlock);
  column_sums_kernel<<<grid, dim3(kColumns, kRows), 0, stream>>>(sums, x, rows, cols, stride);
  winnow::cuda::check_launch("column sums");
}

}  // namespace winnow::ops::cuda
