// The interface between general decode attention's host code and its kernels.
#pragma once

#include "ops/cuda/general/decode_attention.h"

namespace winnow::ops::cuda {

/// Query heads per block, one warp each.
inline constexpr int kMostHeadsOfBlock = 8;

/// Blocks that share the query heads of a KV head.
constexpr int head_blocks(int group) {
  return (group + kMostHeadsOfBlock - 1) / kMostHeadsOfBlock;
}

struct GeneralDecodeArguments {
  DecodeEntries entries;
  AttentionLogits logits;
  const float* query;
  void* out;  // float or bf16
  bool bf16_out;
  int batch;
  int group;
  int head_dim;
  std::size_t page_bytes;
  int splits;            // of each row
  float* partial_out;    // [batch * kv_heads * group, splits, head_dim]
  float2* partial_sums;  // [batch * kv_heads * group, splits]: largest logit, sum of exponentials
};

/// Computes each row's splits.
void launch_general_decode(EntryFormat format, const GeneralDecodeArguments& arguments,
                           cudaStream_t stream);

/// Computes the rows' output from their splits.
void launch_general_decode_reduce(EntryFormat format, const GeneralDecodeArguments& arguments,
                                  cudaStream_t stream);

}  // namespace winnow::ops::cuda
