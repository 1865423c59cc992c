// Low-rank products (LoRA) on the device: each row of a step may have different ones, or none.
#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "base/dtype.h"

namespace winnow::ops::cuda {

/// scale * up (down x), in device memory. Ranks and inputs are multiples of 8.
struct LowRankProduct {
  const bf16* down = nullptr;  // [rank, inputs]; null: there is none
  const bf16* up = nullptr;    // [outputs, rank]
  int rank = 0;
  float scale = 1.0F;
};

/// The largest supported rank.
inline constexpr int kMostLowRank = 512;
/// The largest number of products of one input that are added at once.
inline constexpr int kMostLowRankParts = 3;

/// The products of each row of a step.
struct LowRankRows {
  const LowRankProduct* const* products = nullptr;  // [rows] arrays, or null; null: no row has any
  int rank = 0;                                     // the largest
  float* inner = nullptr;                           // [kMostLowRankParts, rows, rank]
};

/// One of a row's products, and its destination: columns [column, column + outputs).
struct LowRankPart {
  int product = 0;
  int column = 0;
  int outputs = 0;
};

/// x [rows, inputs], out [rows, stride].
struct LowRankShape {
  int rows = 0;
  int inputs = 0;
  int stride = 0;
};

/// out += the parts' products of x.
void add_low_rank(float* out, const bf16* x, const LowRankShape& shape,
                  std::span<const LowRankPart> parts, const LowRankRows& rows, cudaStream_t stream);
void add_low_rank(bf16* out, const bf16* x, const LowRankShape& shape,
                  std::span<const LowRankPart> parts, const LowRankRows& rows, cudaStream_t stream);

}  // namespace winnow::ops::cuda
