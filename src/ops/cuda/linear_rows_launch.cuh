// The kernel of chained layers and its launch, by format.
#pragma once

#include "ops/cuda/linear_rows.cuh"

namespace winnow::ops::cuda {

template <class Format, int kBatches>
__global__ __launch_bounds__(kRowsThreads,
                             1) void linear_rows_kernel(const __grid_constant__ RowsProgram program,
                                                        const __grid_constant__ RowsMemory sizes) {
  extern __shared__ __align__(128) std::byte memory[];
  auto& shared = *reinterpret_cast<RowsShared<kBatches>*>(memory);
  initialize(shared);
  const RowsRings rings = sizes.rings(memory);
  const auto nothing = [](int) {};
  if (threadIdx.x < 32 * kProductWarps) {
    Product<Format, kBatches>(program, shared, rings).run(nothing);
  } else {
    run_other_warps<Format>(program, shared, rings, nothing);
  }
}

template <class Format, int kBatches>
void launch_batches(const RowsProgram& program, const RowsLaunch& launch) {
  auto* kernel = linear_rows_kernel<Format, kBatches>;
  const RowsMemory memory = divide_memory<Format, kBatches>(
      kernel, program, {program.own, static_cast<std::size_t>(program.count)}, 0);
  winnow::cuda::launch(kernel, program.blocks, kRowsThreads, memory.bytes(), launch.stream,
                       launch.overlap, program, memory);
}

template <class Format>
void launch_linear_rows(const RowsProgram& program, const RowsLaunch& launch) {
  if (program.rows > 8) {
    launch_batches<Format, 2>(program, launch);
  } else {
    launch_batches<Format, 1>(program, launch);
  }
}

}  // namespace winnow::ops::cuda
