// Between the host's side of a whole step and its kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kvcache/cuda/append/projection.h"
#include "kvcache/cuda/cache_view.h"
#include "ops/cuda/linear/skinny_gemm_kernels.h"
#include "ops/kv_page.h"

namespace winnow::model::cuda {

inline constexpr int kMostWholeStepLayers = 40;
inline constexpr int kMostWholeStepSequences = 8;
/// Of several sequences; pages of wider heads leave the weights too little memory.
inline constexpr int kMostSeveralHeadDim = 64;
inline constexpr int kMostParts = 16;      // blocks of a KV head of a sequence
inline constexpr int kAttentionWarps = 8;  // of a block that attend
inline constexpr int kMostWholeStepGroup = 8;
inline constexpr int kMostGroupChannels = 512;  // of a group's query heads
inline constexpr int kInverseBits = 12;
/// Places for a part's sums, such that what follows is aligned.
constexpr int part_sums(int group) {
  return (group + 1) / 2 * 2;
}

/// What differs from layer to layer: of a Projection, and where in the published memory the
/// products q, k, v [sequences, width] are (float), the parts of attention, and its output.
struct WholeStepLayer {
  const float* bias = nullptr;
  const float* query_norm = nullptr;
  const float* key_norm = nullptr;
  std::uint32_t products_at = 0;
  std::uint32_t parts_at = 0;
  std::uint32_t output_at = 0;
};

/// How the kernel tells the host that the step has ended: StepKernel::End in step_kernel.h.
struct WholeStepEnd {
  std::int32_t* tokens = nullptr;  // [sequences] null: the step goes on behind the kernel
  std::int32_t* free_pages = nullptr;
  std::int32_t* next_pages = nullptr;  // [sequences] device memory, zero between kernels
};

struct WholeStepArguments {
  kvcache::cuda::CacheView cache;
  const std::int32_t* slots = nullptr;  // [sequences]
  int sequences = 0;
  int layers = 0;
  int group = 0;
  int group_inverse = 0;  // n / group = n * group_inverse >> kInverseBits, for n < 128
  int parts = 0;          // blocks of a KV head of a sequence, a power of two
  int parts_log2 = 0;
  int chunk_log2 = 0;    // columns that are published together
  int chunk_values = 0;  // and places for them of a row
  float scale = 0.0F;    // of the scores, times log2(e)
  float eps = 0.0F;
  const float2* angles = nullptr;          // [sequences, D / 2]
  kvcache::cuda::DecisionSource decision;  // none, channel or drawn
  WholeStepEnd end;
  WholeStepLayer of_layer[kMostWholeStepLayers] = {};

  /// Where a sequence's q, k, v begin in what the layer before makes, in units of D.
  [[nodiscard]] constexpr int products_of(int sequence) const {
    return sequence * cache.kv_heads * (group + 2);
  }
  /// Where an input of a linear layer lies (published_row_bytes() in skinny_gemm_kernels.h).
  [[nodiscard]] constexpr int place_of(int sequence, int column) const {
    return sequences == 1 ? column
                          : ((column >> chunk_log2) * sequences + sequence) * chunk_values +
                                (column & ((1 << chunk_log2) - 1));
  }
};

inline constexpr int kMostWholeStepGemms = 4 * kMostWholeStepLayers + 1;
using WholeStepProgram = ops::cuda::SkinnyProgramOf<kMostWholeStepGemms, WholeStepArguments>;

/// f.operator()<kType, D>() for the formats and head dimensions that there are kernels for.
/// Returns whether this is one.
template <class F>
bool with_whole_step_shape(ops::EntryFormat format, int head_dim, const F& f) {
  using ops::EntryFormat;
  if (format == EntryFormat::f8e4m3 && head_dim == 64) {
    f.template operator()<EntryFormat::f8e4m3, 64>();
  } else if (format == EntryFormat::f8e4m3 && head_dim == 128) {
    f.template operator()<EntryFormat::f8e4m3, 128>();
  } else if (format == EntryFormat::bf16 && head_dim == 64) {
    f.template operator()<EntryFormat::bf16, 64>();
  } else {
    return false;
  }
  return true;
}

/// What a kernel is chosen by, beside the format of weights.
struct WholeStepKind {
  ops::EntryFormat format;
  int head_dim;
  bool long_rows;  // of one sequence; several have one kernel
};

/// One per weight format, each compiled by itself.
void launch_whole_step_bf16(const WholeStepKind& kind, const WholeStepProgram& program,
                            cudaStream_t stream);
void launch_whole_step_fp8(const WholeStepKind& kind, const WholeStepProgram& program,
                           cudaStream_t stream);
void launch_whole_step_int8(const WholeStepKind& kind, const WholeStepProgram& program,
                            cudaStream_t stream);
void launch_whole_step_int4(const WholeStepKind& kind, const WholeStepProgram& program,
                            cudaStream_t stream);

}  // namespace winnow::model::cuda
