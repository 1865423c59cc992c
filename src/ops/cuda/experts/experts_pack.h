// Tokens packed for products by warpgroups.
#pragma once

#include "ops/cuda/experts/experts.h"

namespace winnow::ops::cuda {

/// routes.groups, and routes.packed [groups, kGroupTokens, packed_columns(cols)] = the rows that
/// the routes' places take of input.x [.., cols], as packed_rows.cuh has them. Room that a group
/// has left is worth nothing.
void pack_experts(const Router& router, const RoutesView& routes, const ExpertsInput& input,
                  DeviceWeightFormat format, int cols, int rows, cudaStream_t stream);

}  // namespace winnow::ops::cuda
