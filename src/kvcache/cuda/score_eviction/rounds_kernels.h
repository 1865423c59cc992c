// The interface between the host side of eviction in rounds and its kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kvcache/cuda/cache_view.h"
#include "kvcache/eviction/eviction.h"
#include "ops/cuda/general/attention_logits.h"
#include "ops/kv_page.h"

namespace winnow::kvcache::cuda {

/// A full layer of a sequence whose heads all have `entries` archived entries.
struct RoundLayer {
  CacheView cache;
  int layer = 0;
  int slot = 0;
  int kv_heads = 0;
  int group = 0;
  int entries = 0;
};

/// Queries of consecutive tokens, whose entries are in the archive.
struct ObservedTokens {
  int count = 0;
  int position = 0;               // of the first one
  const bf16* queries = nullptr;  // [count, kv_heads * group * head_dim]
  ops::cuda::AttentionLogits logits;
  /// R-KV, if not 0: the tokens observe the entries before position `past_end` only, by the softmax
  /// over these of a group's largest logits, averaged over so many tokens.
  int averaged = 0;
  int past_end = 0;
};

/// Memory for rows of entries.
struct RoundScratch {
  float* logits = nullptr;        // [tokens, kv_heads, group, stride]
  float* votes = nullptr;         // [tokens, kv_heads, stride]
  float* scores = nullptr;        // [kv_heads, stride]
  std::int32_t* holes = nullptr;  // [kv_heads, stride]
  std::int32_t* moved = nullptr;  // [kv_heads, stride]
  float* keys = nullptr;          // [kv_heads, stride, head_dim] R-KV, Expected Attention
  std::size_t stride = 0;         // entries
};

/// Adds the attention that each entry receives from the tokens, summed over a group's query heads
/// or as R-KV defines, to the attention that it has received.
void launch_observe(ops::EntryFormat format, const RoundLayer& layer, const ObservedTokens& tokens,
                    const RoundScratch& scratch, cudaStream_t stream);

/// Writes the scores of entries from the attention that they have received: its sum over the
/// neighbours, if `neighbours` > 0. The first `count` slots are positions and have scores.
void launch_score_attention(const RoundLayer& layer, int count, int neighbours,
                            const RoundScratch& scratch, cudaStream_t stream);

/// Writes R-KV's scores of the entries before the newest `newest` tokens.
void launch_score_redundancy(ops::EntryFormat format, const RoundLayer& layer, int newest,
                             const RoundScratch& scratch, cudaStream_t stream);

/// FutureQueries of a layer's query heads.
struct ExpectedQueries {
  const double* means = nullptr;     // [heads, head_dim]
  const double* excesses = nullptr;  // [heads, head_dim - turned]
  int turned = 0;                    // planes that RoPE rotates
  bool interleaved = false;
  double* products = nullptr;  // [heads, RoundScratch::stride] scratch
};

/// Writes the scores of all entries by them.
void launch_score_future(ops::EntryFormat format, const RoundLayer& layer,
                         const ExpectedQueries& expected, const RoundScratch& scratch,
                         cudaStream_t stream);

/// Statistics of the queries of a layer (Expected Attention).
struct NotedQueries {
  float* statistics = nullptr;         // [heads, head_dim + head_dim^2] mean, products
  const float* frequencies = nullptr;  // [turned] of RoPE
  int turned = 0;                      // planes that RoPE rotates
  bool interleaved = false;
  float* plain = nullptr;       // [kNotedTogether, heads, head_dim] scratch
  float2* rotations = nullptr;  // [turned] scratch: mean cosines and sines of future positions
};
inline constexpr int kNotedTogether = 256;

/// Adds the queries of up to kNotedTogether tokens, the first of which is query `count` of all.
void launch_note_queries(ops::EntryFormat format, const RoundLayer& layer,
                         const ObservedTokens& tokens, int count, const NotedQueries& noted,
                         cudaStream_t stream);

/// Writes the scores of the entries of a prompt, by the attention that is expected from queries
/// after it. `scale`: of attention's scores.
void launch_expect_attention(ops::EntryFormat format, const RoundLayer& layer, float scale,
                             const NotedQueries& noted, const RoundScratch& scratch,
                             cudaStream_t stream);

/// What a round drops after `length` tokens.
struct Round {
  int length = 0;
  int dropped = 0;  // entries per head: those with the lowest scores, the oldest of equals
  Spared spared;    // enough others are there
  bool forgets = false;
};

/// Drops entries by their scores, in the same slots as on the host, and frees pages.
void launch_drop_round(ops::EntryFormat format, const RoundLayer& layer, const Round& round,
                       const RoundScratch& scratch, cudaStream_t stream);

}  // namespace winnow::kvcache::cuda
