// Between the host's side of TOVA and H2O and their kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"
#include "kvcache/cuda/append/step.h"
#include "kvcache/cuda/cache_view.h"
#include "ops/cuda/general/attention_logits.h"
#include "ops/kv_page.h"

namespace winnow::kvcache::cuda {

/// Tokens that are taken one after another: one of each of `batch` sequences, whose entries are in
/// the cache already, or `tokens` of one sequence, whose entries are the band's first ones.
struct ScoreEvictionArguments {
  CacheView cache;
  int layer;
  int kv_heads;  // of the layer
  int group;
  ops::cuda::AttentionLogits logits;
  bool by_layer;  // TOVA: all heads of a layer drop the same entry
  int batch;
  const std::int32_t* slots;  // [batch], or null: `slot`
  int slot;
  int length;  // of `slot`, before the chunk
  int tokens;
  BandView band;           // of a chunk
  const void* queries;     // decode: float [batch, heads * head_dim]; chunk: bf16 [tokens, ...]
  bf16* out;               // the same shape
  float* weights;          // [batch * kv_heads, group, stride] scratch
  float* sums;             // [2, batch * kv_heads, stride] TOVA: a layer's heads see each other's
  std::uint32_t* arrived;  // [batch] TOVA: zeros
  std::size_t stride;      // entries of a row that there is room for
};

/// What the kernels are built for. `fast`: attention on tensor cores, where has_own_kernels() and
/// logits are plain; else of any shape.
struct ScoreEvictionShape {
  ops::EntryFormat format;
  int head_dim;
  bool fast;
};

/// Blocks of the kernel that the device holds at once, for layers of `group` query heads per KV
/// head: TOVA's wait for each other.
int resident_score_eviction_blocks(const ScoreEvictionShape& shape, int group);
void launch_score_eviction(const ScoreEvictionShape& shape, const ScoreEvictionArguments& arguments,
                           cudaStream_t stream);

}  // namespace winnow::kvcache::cuda
