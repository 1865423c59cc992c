// Between the host's side of a decode step and its kernels.
#pragma once

#include <span>

#include "kvcache/cuda/cache_view.h"
#include "kvcache/cuda/step.h"
#include "ops/cuda/decode_attention_kernels.h"
#include "ops/cuda/linear_rows_kernels.h"

namespace winnow::model::cuda {

/// All layers of a step: the linear ones (q k v, o, gate-up, down of each layer, then the head),
/// and behind each q k v append, attention, and the merge of its parts.
struct StepProgram {
  ops::cuda::RowsProgram rows;
  kvcache::cuda::CacheView cache;
  kvcache::cuda::DecodeAppend append;                      // of layer 0
  const kvcache::cuda::Projection* projections = nullptr;  // [layers], device memory
  ops::cuda::DecodeArguments attention;                    // of layer 0
  std::size_t plan_rows = 0;                               // of a layer
  int append_blocks = 0;                                   // that take tokens
  int merge_items = 0;
  int merge_blocks = 0;  // that merge
};

/// What a kernel is made for.
struct StepKind {
  DType entries;
  int head_dim;
};

/// Warps per block that attend: a plan for `blocks` such blocks has so many workers each.
inline constexpr int kStepWorkers = 8;

/// One per weight format, each compiled by itself.
void launch_step_bf16(const StepProgram& program, const StepKind& kind,
                      std::span<const ops::cuda::RowsLayer> layers, cudaStream_t stream);
void launch_step_fp8(const StepProgram& program, const StepKind& kind,
                     std::span<const ops::cuda::RowsLayer> layers, cudaStream_t stream);
void launch_step_int8(const StepProgram& program, const StepKind& kind,
                      std::span<const ops::cuda::RowsLayer> layers, cudaStream_t stream);
void launch_step_int4(const StepProgram& program, const StepKind& kind,
                      std::span<const ops::cuda::RowsLayer> layers, cudaStream_t stream);

}  // namespace winnow::model::cuda
