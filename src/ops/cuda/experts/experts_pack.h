// Tokens packed for products by warpgroups.
#pragma once

#include "ops/cuda/experts/experts.h"

namespace winnow::ops::cuda {

/// Rows that are packed.
struct UnpackedRows {
  const bf16* x = nullptr;  // [.., cols]
  bool by_token = false;    // a row per token; otherwise a row per place
  int cols = 0;             // a multiple of 8
};

/// Sets routes.groups.
void group_tokens(const Router& router, const RoutesView& routes, cudaStream_t stream);

/// packed [groups, kGroupTokens, packed_columns(cols)] = the rows that belong to the places of
/// `rows` tokens, in the layout of packed_rows.cuh. Empty rows of a group are undefined.
void pack_tokens(const Router& router, const RoutesView& routes, const UnpackedRows& from,
                 bf16* packed, DeviceWeightFormat format, int rows, cudaStream_t stream);

}  // namespace winnow::ops::cuda
