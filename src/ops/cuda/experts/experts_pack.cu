// Tokens of experts with many tokens each, packed for products by warpgroups: each expert's tokens
// in groups of kGroupTokens, the last of which may be partly empty.
#include "base/cuda/launch.cuh"
#include "ops/cuda/experts/experts_pack.h"
#include "ops/cuda/experts/packed_columns.h"
#include "ops/cuda/linear/packed_rows.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 128;

// One block counts: the first group of each expert, then the number of groups.
__global__ void __launch_bounds__(kMostExperts) group_kernel(RoutesView routes, int experts) {
  __shared__ std::int32_t sums[kMostExperts];
  winnow::cuda::wait_for_predecessor();
  const int own = static_cast<int>(threadIdx.x);
  const int tokens = own < experts ? routes.begins[own + 1] - routes.begins[own] : 0;
  sums[own] = (tokens + kGroupTokens - 1) / kGroupTokens;
  for (int distance = 1; distance < kMostExperts; distance *= 2) {
    __syncthreads();
    const std::int32_t before = own >= distance ? sums[own - distance] : 0;
    __syncthreads();
    sums[own] += before;
  }
  if (own < experts) {
    routes.groups[own + 1] = sums[own];
  }
  if (own == 0) {
    routes.groups[0] = 0;
  }
}

// A block per row of x, which it writes to each of its places.
__global__ void __launch_bounds__(kThreads)
    pack_kernel(RoutesView routes, UnpackedRows from, bf16* packed, int active, float unit) {
  winnow::cuda::wait_for_predecessor();
  const int row = static_cast<int>(blockIdx.x);
  const int padded = packed_columns(from.cols);
  const int copies = from.by_token ? active : 1;
  for (int column = static_cast<int>(threadIdx.x) * 8; column < padded; column += kThreads * 8) {
    const Eight x = column < from.cols
                        ? load_eight(from.x + static_cast<std::size_t>(row) * from.cols + column)
                        : Eight{};
    for (int copy = 0; copy < copies; ++copy) {
      const int place = from.by_token ? routes.places[row * active + copy] : row;
      const int expert = routes.experts[from.by_token ? row * active + copy : routes.pairs[place]];
      const int within = place - routes.begins[expert];
      const std::size_t group =
          static_cast<unsigned>(routes.groups[expert] + within / kGroupTokens);
      PackedView(packed + group * kGroupTokens * padded, kGroupTokens, unit)
          .store(within % kGroupTokens, column, x);
    }
  }
}

}  // namespace

void group_tokens(const Router& router, const RoutesView& routes, cudaStream_t stream) {
  winnow::cuda::launch(group_kernel, 1, kMostExperts, 0, stream, true, routes, router.count);
}

void pack_tokens(const Router& router, const RoutesView& routes, const UnpackedRows& from,
                 bf16* packed, DeviceWeightFormat format, int rows, cudaStream_t stream) {
  winnow::cuda::launch(
      pack_kernel, static_cast<unsigned>(from.by_token ? rows : rows * router.active), kThreads, 0,
      stream, true, routes, from, packed, router.active, PackedView::unit_of(format));
}

}  // namespace winnow::ops::cuda
