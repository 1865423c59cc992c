// The gated delta rule for training on the device: packed documents at once, forward and backward
// (ops/delta_rule.h; Yang, Kautz and Hatamizadeh 2024). Tokens are taken in chunks, within which
// the rule comes down to products of matrices; states pass from chunk to chunk.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "ops/delta_rule.h"

namespace winnow::ops::cuda {

/// Tokens of a chunk.
inline constexpr int kDeltaChunk = 64;

/// What forward leaves for backward, and what that needs: pieces of one array of floats.
struct DeltaScratch {
  DeltaScratch() = default;
  DeltaScratch(const DeltaRuleShape& heads, int rows, float* memory);
  /// Floats that the array has.
  static std::size_t size(const DeltaRuleShape& heads, int rows);

  /// [chunks, value_heads, kDeltaChunk]: log decays, summed up from the chunk's beginning.
  float* sums = nullptr;
  float* matrices = nullptr;  // [chunks, value_heads, 3, kDeltaChunk, kDeltaChunk]
  float* states = nullptr;    // [chunks, value_heads, key_dim, value_dim]: before each chunk
  float* updates = nullptr;   // [T, value_width]: what each token adds for its key
  float* dstates = nullptr;   // of the states behind each chunk
  float* dupdates = nullptr;  // [T, value_width]
};

/// What the rule takes. Head dimensions are multiples of 4, at most kMostRecurrentDim.
struct TrainingDelta {
  DeltaRuleShape heads;
  int rows = 0;                             // T
  const std::int32_t* first_key = nullptr;  // [T]: of the document, which begins without a state
  const float* mixed = nullptr;             // [T, channels]: queries, keys, values
  const float* rates = nullptr;             // [T, value_heads]
  const float* log_decays = nullptr;        // [T, value_heads]: at most 0
  DeltaScratch scratch;
};

/// Bytes of shared memory that a block needs for heads of so many key channels.
std::size_t training_delta_shared_memory(int key_dim);

/// out [T, value_width], rounded; null: only what backward needs is computed. Operands of products
/// are rounded to TF32, sums are floats.
void training_delta(const TrainingDelta& rule, bf16* out, cudaStream_t stream);

/// What training_delta_backward() writes.
struct TrainingDeltaGradients {
  float* queries = nullptr;  // [T, value_heads, key_dim]: of each value head's own
  float* keys = nullptr;     // the same
  float* values = nullptr;   // [T, value_width]
  float* rates = nullptr;    // [T, value_heads]
  float* log_decays = nullptr;
};

/// Backward of training_delta(), right behind it with the same scratch, given the gradient of out
/// [T, value_width]. The same operands give the same bits.
void training_delta_backward(const TrainingDelta& rule, const float* dout,
                             const TrainingDeltaGradients& gradients, cudaStream_t stream);

}  // namespace winnow::ops::cuda
