// Between the host's side of decode attention and its kernels.
#pragma once

#include "ops/cuda/decode_attention.h"

namespace winnow::ops::cuda {

/// Warps per block.
inline constexpr int kDecodeWarps = 4;

/// Query heads per KV head.
inline constexpr int kMostGroup = 8;

/// Pages of a warp in shared memory: one being read, the others on their way.
constexpr int decode_stages(int element_bytes) {
  return element_bytes == 1 ? 4 : 3;
}

constexpr int page_bytes(int head_dim, int element_bytes) {
  const int scales = element_bytes == 1 ? 4 * kPageEntries : 0;
  return (2 * kPageEntries * head_dim * element_bytes + scales + 63) / 64 * 64;
}

/// Shared memory of a block.
constexpr int decode_shared_bytes(int head_dim, int element_bytes) {
  return kDecodeWarps * decode_stages(element_bytes) * page_bytes(head_dim, element_bytes);
}

/// Blocks that a multiprocessor (Hopper's) has registers and shared memory for. A lane holds its
/// share of the output (head_dim / 2) and of the queries (head_dim / 4), and some.
constexpr int blocks_resident(int head_dim, int element_bytes) {
  const int by_registers = 65536 / (32 * kDecodeWarps) / (head_dim * 3 / 4 + 48);
  const int by_memory = 227 * 1024 / (decode_shared_bytes(head_dim, element_bytes) + 1024);
  return by_registers < by_memory ? by_registers : by_memory;
}

struct DecodeArguments {
  DecodeEntries entries;
  DecodePlan::View plan;
  const float* query;
  float* out;
  float scale;  // of the scores, times log2(e)
  int group;
};

void launch_plan(const DecodeEntries& entries, const DecodePlan::View& plan, cudaStream_t stream);

void launch_attention(DType format, int head_dim, const DecodeArguments& arguments,
                      cudaStream_t stream);

}  // namespace winnow::ops::cuda
