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

// A block per place.
__global__ void __launch_bounds__(kThreads)
    pack_kernel(RoutesView routes, const bf16* x, bool by_token, int active, int cols, float unit) {
  winnow::cuda::wait_for_predecessor();
  const int place = static_cast<int>(blockIdx.x);
  const int pair = routes.pairs[place];
  const int expert = routes.experts[pair];
  const int within = place - routes.begins[expert];
  const std::size_t group = static_cast<std::size_t>(routes.groups[expert]) + within / kGroupTokens;
  const int padded = packed_columns(cols);
  const PackedView packed(routes.packed + group * kGroupTokens * padded, kGroupTokens, unit);
  const bf16* row = x + static_cast<std::size_t>(by_token ? pair / active : place) * cols;
  for (int column = static_cast<int>(threadIdx.x) * 8; column < padded; column += kThreads * 8) {
    packed.store(within % kGroupTokens, column, column < cols ? load_eight(row + column) : Eight{});
  }
}

}  // namespace

void pack_experts(const Router& router, const RoutesView& routes, const ExpertsInput& input,
                  DeviceWeightFormat format, int cols, int rows, cudaStream_t stream) {
  winnow::cuda::launch(group_kernel, 1, kMostExperts, 0, stream, true, routes, router.count);
  winnow::cuda::launch(pack_kernel, static_cast<unsigned>(rows * router.active), kThreads, 0,
                       stream, true, routes, input.x, input.by_token, router.active, cols,
                       PackedView::unit_of(format));
}

}  // namespace winnow::ops::cuda
