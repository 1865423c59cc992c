// Tokens packed for products by warpgroups.
#pragma once

#include "ops/cuda/experts/experts.h"

namespace winnow::ops::cuda {

/// Sets routes.groups, and routes.packed [groups, kGroupTokens, packed_columns(cols)] = the rows of
/// input.x [.., cols] that belong to the routes' places, in the layout of packed_rows.cuh. Empty
/// rows of a group are undefined.
void pack_experts(const Router& router, const RoutesView& routes, const ExpertsInput& input,
                  DeviceWeightFormat format, int cols, int rows, cudaStream_t stream);

}  // namespace winnow::ops::cuda
