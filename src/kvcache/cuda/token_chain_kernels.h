// Between the host's side of a token's chain of layers and its kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kvcache/cuda/cache_view.h"
#include "kvcache/cuda/projection.h"
#include "ops/cuda/linear/linear_rows_kernels.h"
#include "ops/kv_page.h"

namespace winnow::kvcache::cuda {

inline constexpr int kMostChainedModelLayers = 40;
inline constexpr int kMostChainedSequences = 8;
/// Of several sequences; pages of wider heads leave the weights too little memory.
inline constexpr int kMostSeveralHeadDim = 64;
inline constexpr int kMostParts = 16;    // blocks of a KV head of a sequence
inline constexpr int kChainedWarps = 8;  // of a block that attend
inline constexpr int kMostChainedGroup = 8;
inline constexpr int kMostGroupChannels = 512;  // of a group's query heads
inline constexpr int kInverseBits = 12;
/// Places for a part's sums, such that what follows is aligned.
constexpr int part_sums(int group) {
  return (group + 1) / 2 * 2;
}

/// What differs from layer to layer: of a Projection, and where in the handed memory the products
/// q, k, v [sequences, width] are (float), the parts of attention, and its output.
struct ChainedLayer {
  const float* bias = nullptr;
  const float* query_norm = nullptr;
  const float* key_norm = nullptr;
  std::uint32_t products_at = 0;
  std::uint32_t parts_at = 0;
  std::uint32_t output_at = 0;
};

/// How a chain that ends its step tells the host: StepEnd in token_chain.h.
struct ChainedEnd {
  std::int32_t* tokens = nullptr;  // [sequences] null: the step goes on behind the chain
  std::int32_t* free_pages = nullptr;
  std::int32_t* next_pages = nullptr;  // [sequences] device memory, zero between kernels
};

struct ChainedArguments {
  CacheView cache;
  const std::int32_t* slots = nullptr;  // [sequences]
  int sequences = 0;
  int layers = 0;
  int group = 0;
  int group_inverse = 0;  // n / group = n * group_inverse >> kInverseBits, for n < 128
  int parts = 0;          // blocks of a KV head of a sequence, a power of two
  int parts_log2 = 0;
  int chunk_log2 = 0;    // columns that are handed on together
  int chunk_values = 0;  // and places for them of a row
  float scale = 0.0F;    // of the scores, times log2(e)
  float eps = 0.0F;
  const float2* angles = nullptr;  // [sequences, D / 2]
  DecisionSource decision;         // none, channel or drawn
  ChainedEnd end;
  ChainedLayer of_layer[kMostChainedModelLayers] = {};

  /// Where a sequence's q, k, v begin in what the layer before makes, in units of D.
  [[nodiscard]] constexpr int products_of(int sequence) const {
    return sequence * cache.kv_heads * (group + 2);
  }
  /// Where an input of a linear layer lies (handed_row_bytes() in linear_rows_kernels.h).
  [[nodiscard]] constexpr int place_of(int sequence, int column) const {
    return sequences == 1 ? column
                          : ((column >> chunk_log2) * sequences + sequence) * chunk_values +
                                (column & ((1 << chunk_log2) - 1));
  }
};

inline constexpr int kMostChainedRowsLayers = 4 * kMostChainedModelLayers + 1;
using TokenProgram = ops::cuda::RowsProgramOf<kMostChainedRowsLayers, ChainedArguments>;

/// f.operator()<kType, D>() for the formats and head dimensions that there are kernels for.
/// Returns whether this is one.
template <class F>
bool with_chained_shape(ops::EntryFormat format, int head_dim, const F& f) {
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
struct ChainedKind {
  ops::EntryFormat format;
  int head_dim;
  bool long_rows;  // of one sequence; several have one kernel
};

/// One per weight format, each compiled by itself.
void launch_token_chain_bf16(const ChainedKind& kind, const TokenProgram& program,
                             cudaStream_t stream);
void launch_token_chain_fp8(const ChainedKind& kind, const TokenProgram& program,
                            cudaStream_t stream);
void launch_token_chain_int8(const ChainedKind& kind, const TokenProgram& program,
                             cudaStream_t stream);
void launch_token_chain_int4(const ChainedKind& kind, const TokenProgram& program,
                             cudaStream_t stream);

}  // namespace winnow::kvcache::cuda
