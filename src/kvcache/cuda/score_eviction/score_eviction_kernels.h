// The interface between the host side of score eviction and its kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"
#include "kvcache/cuda/append/step.h"
#include "kvcache/cuda/cache_view.h"
#include "kvcache/cuda/score_eviction/rank_scores.h"
#include "kvcache/eviction/eviction.h"
#include "ops/cuda/general/attention_logits.h"
#include "ops/kv_page.h"

namespace winnow::kvcache::cuda {

/// Tokens that are handled one after another: one of each of `batch` sequences, whose entries are
/// in the cache already, or `tokens` of one sequence, whose entries are the first of the band.
struct ScoreEvictionArguments {
  CacheView cache;
  int layer;
  int kv_heads;  // of the layer
  int group;
  ops::cuda::AttentionLogits logits;
  bool observes;       // attention adds to scores
  DeviceScore scored;  // by what
  bool by_layer;       // TOVA: all heads of a layer drop the same entry, by the sum of their scores
  int batch;
  const std::int32_t* slots;  // [batch], or null: `slot`
  int slot;
  int length;  // of `slot`, before the chunk
  int tokens;
  BandView band;           // of a chunk
  const void* queries;     // decode: float [batch, heads * head_dim]; chunk: bf16 [tokens, ...]
  bf16* out;               // the same shape
  float* weights;          // [batch * kv_heads, group, stride] scratch
  float* sums;             // [2, batch * kv_heads, stride] TOVA: shared by a layer's heads
  std::uint32_t* arrived;  // [batch] TOVA: zero at launch
  RankScores ranks;        // TOVA: of all heads of the layer
  std::size_t stride;      // capacity of a row in entries
};

/// The variants of the kernel. `fast`: attention on tensor cores, for has_own_kernels() and plain
/// logits; else the kernel for any shape.
struct ScoreEvictionShape {
  ops::EntryFormat format;
  int head_dim;
  bool fast;
};

/// The number of the kernel's blocks that the device holds at once, for layers of `group` query
/// heads per KV head. TOVA's blocks wait for each other.
int resident_score_eviction_blocks(const ScoreEvictionShape& shape, int group);
void launch_score_eviction(const ScoreEvictionShape& shape, const ScoreEvictionArguments& arguments,
                           cudaStream_t stream);

}  // namespace winnow::kvcache::cuda
