// The interface between a whole step's host code and its kernels.
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
/// For several sequences; pages of wider heads leave too little memory for the weights.
inline constexpr int kMostSeveralHeadDim = 64;
inline constexpr int kMostParts = 16;      // blocks per KV head of a sequence
inline constexpr int kAttentionWarps = 8;  // warps per block that attend
inline constexpr int kMostWholeStepGroup = 8;
inline constexpr int kMostGroupChannels = 512;  // of all query heads of a group
inline constexpr int kInverseBits = 12;
/// Number of float2 sums of a part; even, to align the outputs after them.
constexpr int part_sums(int group) {
  return (group + 1) / 2 * 2;
}

/// The parameters that differ between layers: those of Projection, and the offsets in published
/// memory of the products q, k, v [sequences, width] (float), of attention's parts and its output.
struct WholeStepLayer {
  const float* bias = nullptr;
  const float* query_norm = nullptr;
  const float* key_norm = nullptr;
  std::uint32_t products_at = 0;
  std::uint32_t parts_at = 0;
  std::uint32_t output_at = 0;
};

/// How the kernel signals the end of the step to the host: see StepKernel::End.
struct WholeStepEnd {
  std::int32_t* tokens = nullptr;  // [sequences] null: later kernels end the step
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
  int parts = 0;          // blocks per KV head of a sequence, a power of two
  int parts_log2 = 0;
  int chunk_log2 = 0;    // columns that are published together
  int chunk_values = 0;  // and the values that a row of them takes
  float scale = 0.0F;    // of the scores, times log2(e)
  float eps = 0.0F;
  const float2* angles = nullptr;          // [sequences, D / 2]
  kvcache::cuda::DecisionSource decision;  // none, channel or drawn
  WholeStepEnd end;
  WholeStepLayer of_layer[kMostWholeStepLayers] = {};

  /// Where a sequence's q, k, v begin in the product, in units of D.
  [[nodiscard]] constexpr int products_of(int sequence) const {
    return sequence * cache.kv_heads * (group + 2);
  }
  /// The index of an input of a linear layer (published_row_bytes() in skinny_gemm_kernels.h).
  [[nodiscard]] constexpr int place_of(int sequence, int column) const {
    return sequences == 1 ? column
                          : ((column >> chunk_log2) * sequences + sequence) * chunk_values +
                                (column & ((1 << chunk_log2) - 1));
  }
};

inline constexpr int kMostWholeStepGemms = 4 * kMostWholeStepLayers + 1;
using WholeStepProgram = ops::cuda::SkinnyProgramOf<kMostWholeStepGemms, WholeStepArguments>;
static_assert(sizeof(WholeStepProgram) <= 32764);  // a kernel's parameters

/// Calls f.operator()<kType, D>() if there are kernels for this format and head dimension. Returns
/// whether there are.
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

/// What chooses a kernel, besides the format of weights.
struct WholeStepKind {
  ops::EntryFormat format;
  int head_dim;
  bool long_rows;  // for one sequence; several have one kernel
};

/// One per weight format, each in a source file of its own.
void launch_whole_step_bf16(const WholeStepKind& kind, const WholeStepProgram& program,
                            cudaStream_t stream);
void launch_whole_step_fp8(const WholeStepKind& kind, const WholeStepProgram& program,
                           cudaStream_t stream);
void launch_whole_step_int8(const WholeStepKind& kind, const WholeStepProgram& program,
                            cudaStream_t stream);
void launch_whole_step_int4(const WholeStepKind& kind, const WholeStepProgram& program,
                            cudaStream_t stream);

}  // namespace winnow::model::cuda
