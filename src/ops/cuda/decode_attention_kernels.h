// Between the host's side of decode attention and its kernels.
#pragma once

#include "ops/cuda/decode_attention.h"

namespace winnow::ops::cuda {

/// Query heads per KV head.
inline constexpr int kMostGroup = 8;

/// Warps per block of the attention.
inline constexpr int kDecodeWarps = 4;

/// Pages that a warp takes at once: more where there are registers for it.
__host__ __device__ constexpr int tile_pages(int head_dim) {
  return head_dim <= 64 ? 2 : 1;
}

/// Power of two that a part's sum and output are multiplied by (kv_codes.cuh: kWeightBits).
constexpr float part_bits(EntryFormat format) {
  return format == EntryFormat::bf16 ? 0.0F : format == EntryFormat::q4 ? 2.0F : 8.0F;
}

struct DecodeArguments {
  DecodeEntries entries;
  DecodePlan::View plan;
  const float* query;  // as attention multiplies them; unused by a kernel that makes its own
  void* out;           // float or bf16
  bool bf16_out;
  float scale;  // of the scores, times log2(e)
  int group;
  float part_bits;
};

/// Where run `run` leaves its part of row `row` among all parts, and where that of the step's own
/// token lies, if it is attended to beside the runs. Runs and rows both ascend, so no two share a
/// place, and the parts of a row follow one another.
__host__ __device__ constexpr std::size_t part_of(int run, int row) {
  return static_cast<std::size_t>(run) + 2 * static_cast<std::size_t>(row) + 1;
}
__host__ __device__ constexpr std::size_t token_part_of(int first_run, int row) {
  return part_of(first_run, row) - 1;
}

__host__ __device__ constexpr int pages_for(int entries) {
  return (entries + kPageEntries - 1) / kPageEntries;
}

/// Plans `layers` layers whose views follow one another in memory, `most_rows` rows each. Ends
/// before its successor begins.
struct PlanArguments {
  DecodeEntries entries;  // of the first layer
  std::size_t layer_counts;
  DecodePlan::View plan;  // of the first layer
  std::size_t most_rows;
  int layers;
  int tile_pages;
};
void launch_plan(const PlanArguments& arguments, cudaStream_t stream);

/// Dynamic shared memory of a kernel of blocks of kDecodeWarps that attends to runs
/// (decode_run.cuh).
int decode_shared_bytes(EntryFormat format, int head_dim, int group);

/// Warps of such a kernel that the device can hold at once; a multiple of kDecodeWarps. Makes the
/// kernel fit for as much shared memory as it may need.
int resident_workers(const void* kernel, EntryFormat format, int head_dim, int group);
/// The same of attend()'s.
int resident_workers(EntryFormat format, int head_dim, int group);

/// Each run's parts of its rows.
void launch_attention(EntryFormat format, int head_dim, const DecodeArguments& arguments,
                      cudaStream_t stream);

/// The rows' output, from their parts; turned back where entries are rotated.
void launch_merge(EntryFormat format, int head_dim, const DecodeArguments& arguments,
                  cudaStream_t stream);

}  // namespace winnow::ops::cuda
