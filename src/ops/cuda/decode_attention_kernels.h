// Between the host's side of decode attention and its kernels.
#pragma once

#include "ops/cuda/decode_attention.h"

namespace winnow::ops::cuda {

/// Query heads per KV head.
inline constexpr int kMostGroup = 8;

/// Warps per block of the attention.
inline constexpr int kDecodeWarps = 4;

struct DecodeArguments {
  DecodeEntries entries;
  DecodePlan::View plan;
  const float* query;
  void* out;  // float or bf16
  bool bf16_out;
  float scale;  // of the scores, times log2(e)
  int group;
};

/// Plans `layers` layers whose views follow one another in memory, `most_rows` rows each. Ends
/// before its successor begins.
struct PlanArguments {
  DecodeEntries entries;  // of the first layer
  std::size_t layer_counts;
  DecodePlan::View plan;  // of the first layer
  std::size_t most_rows;
  int layers;
};
void launch_plan(const PlanArguments& arguments, cudaStream_t stream);

/// Blocks of the attention that the device can hold at once.
int resident_blocks(DType format, int head_dim, int group);

/// Each run of the plan; rows that lie in one run whole are done then, of others their parts.
void launch_attention(DType format, int head_dim, const DecodeArguments& arguments,
                      cudaStream_t stream);

/// Merges the parts of the other rows.
void launch_merge(int head_dim, const DecodeArguments& arguments, cudaStream_t stream);

}  // namespace winnow::ops::cuda
