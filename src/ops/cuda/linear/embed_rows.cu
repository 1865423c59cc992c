#include "base/cuda/launch.cuh"
#include "ops/cuda/linear/embed_row.cuh"
#include "ops/cuda/linear/skinny_gemm_kernels.h"

namespace winnow::ops::cuda {
namespace {

/// A block per row.
template <class Format>
__global__ void embed(const __grid_constant__ DeviceWeightView table, const std::int32_t* tokens,
                      int first_token, const __grid_constant__ ResidualStream residual) {
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  embed_row<Format>(table, tokens[blockIdx.x] - first_token, static_cast<int>(blockIdx.x),
                    residual);
}

}  // namespace

void launch_embed_rows(const DeviceWeightView& table, const std::int32_t* tokens, int rows,
                       const ResidualStream& residual, const SkinnyLaunch& launch,
                       int first_token) {
  with_format(table.format, [&](auto format) {
    winnow::cuda::launch(embed<decltype(format)>, rows, kEmbedThreads, 0, launch.stream,
                         launch.overlap, table, tokens, first_token, residual);
  });
}

}  // namespace winnow::ops::cuda
