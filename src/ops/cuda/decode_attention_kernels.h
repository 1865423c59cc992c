// Between the host's side of decode attention and its kernels.
#pragma once

#include "ops/cuda/decode_attention.h"

namespace winnow::ops::cuda {

/// Warps per block.
inline constexpr int kDecodeWarps = 4;

/// Blocks that the registers of a multiprocessor have room for. A lane holds its share of the
/// output (head_dim / 2), the queries (head_dim / 4) and a page (head_dim * element_bytes / 4), and
/// some.
constexpr int blocks_resident(int head_dim, int element_bytes) {
  return 65536 / (32 * kDecodeWarps) / (head_dim * (3 + element_bytes) / 4 + 40);
}

struct DecodeArguments {
  DecodeEntries entries;
  DecodePlan::View plan;
  const float* query;
  float* out;
  float scale;  // of the scores, times log2(e)
  int group;
  std::size_t page_bytes;
};

void launch_plan(const DecodeEntries& entries, const DecodePlan::View& plan, cudaStream_t stream);

void launch_attention(DType format, int head_dim, const DecodeArguments& arguments,
                      cudaStream_t stream);

}  // namespace winnow::ops::cuda
