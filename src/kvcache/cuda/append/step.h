// One layer's part of a step, as the kernels see it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kvcache/cuda/append/projection.h"

namespace winnow::kvcache::cuda {

/// One token of each of `batch` sequences, in slots[batch] (device memory). The cache's lengths do
/// not include this token until all layers are done. A negative slot is padding: nothing
/// happens.
struct DecodeAppend {
  int layer = 0;
  int batch = 0;
  const std::int32_t* slots = nullptr;  // [batch]
  const float* qkv = nullptr;           // [batch, columns * head_dim] of the projection
  float* queries = nullptr;             // [batch, heads * head_dim]
  float* open_scores = nullptr;         // [batch, heads] DMC: query . open key
};

/// The layer's products [tokens, columns * head_dim] of the projection: in 16 bits for many rows,
/// in float for few. The other pointer is null.
struct QkvRows {
  const bf16* rounded = nullptr;
  const float* exact = nullptr;
};

/// `tokens` tokens of the sequence in `slot`, which has `length` so far.
struct PrefillAppend {
  int layer = 0;
  int slot = 0;
  int length = 0;
  int tokens = 0;
  QkvRows qkv;
  bf16* queries = nullptr;  // [tokens, heads * head_dim]
};

/// The memory of a Band (append.h).
struct BandView {
  int stride;
  std::byte* keys;
  std::byte* values;
  bf16* scales;
  std::uint8_t* decisions;
  std::int32_t* seen;
  std::int32_t* kept;
  std::int32_t* counts;
  float* logits;  // limited archives
  // DMC
  float* merge_keys;
  float* merge_values;
  float* omegas;
  float* open_before;
};

}  // namespace winnow::kvcache::cuda
