#include "ops/cuda/linear/fp8_rows.h"

#include "base/cuda/launch.cuh"
#include "ops/cuda/linear/fp8_rows.cuh"

namespace winnow::ops::cuda {
namespace {

__global__ void __launch_bounds__(kCodeThreads)
    quantize_rows_kernel(Fp8RowsTo out, const bf16* x, int cols) {
  winnow::cuda::wait_for_predecessor();
  const bf16* row = x + std::size_t{blockIdx.x} * cols;
  write_codes<4>(out, cols, [row](int column) { return load_eight(row + column); });
}

// Without its scale a weight is exactly a code.
__global__ void __launch_bounds__(kCodeThreads)
    copy_codes_kernel(std::uint8_t* codes, DeviceWeightView weight, int first) {
  auto* out = reinterpret_cast<uint2*>(codes + std::size_t{blockIdx.x} * weight.cols);
  for (int i = static_cast<int>(threadIdx.x); i < weight.cols / 8; i += kCodeThreads) {
    const WeightPlace<Fp8Weight> place(weight, first + static_cast<int>(blockIdx.x), 8 * i);
    const uint4 piece = *reinterpret_cast<const uint4*>(weight.memory + place.piece);
    const std::uint32_t words[] = {piece.x, piece.y, piece.z, piece.w};
    out[i] = {Fp8Weight::codes(words[2 * place.block]),
              Fp8Weight::codes(words[2 * place.block + 1])};
  }
}

}  // namespace

void quantize_rows(const Fp8RowsTo& out, const bf16* x, int rows, int cols, cudaStream_t stream) {
  if (rows > 0) {
    winnow::cuda::launch(quantize_rows_kernel, static_cast<unsigned>(rows), kCodeThreads, 0, stream,
                         true, out, x, cols);
  }
}

void copy_codes(std::uint8_t* codes, const DeviceWeightView& weight, int first, int count,
                cudaStream_t stream) {
  if (count > 0) {
    winnow::cuda::launch(copy_codes_kernel, static_cast<unsigned>(count), kCodeThreads, 0, stream,
                         false, codes, weight, first);
  }
}

}  // namespace winnow::ops::cuda
