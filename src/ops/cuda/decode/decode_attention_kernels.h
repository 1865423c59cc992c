// The interface between decode attention's host code and its kernels.
#pragma once

#include "ops/cuda/decode/decode_attention.h"

namespace winnow::ops::cuda {

/// Warps per block of the attention.
inline constexpr int kDecodeWarps = 4;

/// Pages that a warp processes at once: more if there are registers for it.
__host__ __device__ constexpr int tile_pages(int head_dim) {
  return head_dim <= 64 ? 2 : 1;
}

/// A part's sum and output are multiplied by 2 to this power (kv_codes.cuh: kWeightExponent).
constexpr float part_exponent(EntryFormat format) {
  switch (format) {
    case EntryFormat::f8e4m3:
    case EntryFormat::i8:
      return 8.0F;
    case EntryFormat::q4:
      return 2.0F;
    case EntryFormat::bf16:
    case EntryFormat::f32:  // no entries on devices
      break;
  }
  return 0.0F;
}

struct DecodeArguments {
  DecodeEntries entries;
  DecodePlan::View plan;
  const float* query;
  void* out;  // float or bf16
  bool bf16_out;
  float scale;  // of the scores, times log2(e)
  int group;
  float part_exponent;
};

/// The index of run `run`'s part of row `row` among all parts: runs and rows both ascend, so no
/// two share an index, and the parts of a row are contiguous.
__host__ __device__ constexpr std::size_t part_of(int run, int row) {
  return static_cast<std::size_t>(run) + row;
}

__host__ __device__ constexpr int pages_for(int entries) {
  return (entries + kPageEntries - 1) / kPageEntries;
}

/// Plans `layers` layers whose views are contiguous in memory, `most_rows` rows each. Completes
/// before its successor begins.
struct PlanArguments {
  DecodeEntries entries;  // of the first layer
  std::size_t layer_counts;
  DecodePlan::View plan;  // of the first layer
  std::size_t most_rows;
  int layers;
  int tile_pages;
  DecodePlan::Report* reports;  // [layers], host memory
};
void launch_plan(const PlanArguments& arguments, cudaStream_t stream);

/// Warps of the attention that the device can hold at once; a multiple of kDecodeWarps.
int resident_workers(EntryFormat format, int head_dim, int group);

/// Computes each run's parts of its rows.
void launch_attention(EntryFormat format, int head_dim, const DecodeArguments& arguments,
                      cudaStream_t stream);

/// Computes the rows' output from their parts, rotated back if entries are rotated.
void launch_splitk_reduce(EntryFormat format, int head_dim, const DecodeArguments& arguments,
                          cudaStream_t stream);

}  // namespace winnow::ops::cuda
