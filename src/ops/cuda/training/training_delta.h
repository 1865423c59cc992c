// The gated delta rule for training on the device: packed documents at once, forward and backward
// (ops/delta_rule.h; Yang, Kautz and Hatamizadeh 2024). Tokens are processed in chunks, within
// which the rule reduces to products of matrices; states pass from chunk to chunk.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "ops/cuda/training/scratch_sizes.h"
#include "ops/delta_rule.h"

namespace winnow::ops::cuda {

/// Forward's results that backward needs, and backward's scratch: parts of one array of floats.
struct DeltaScratch {
  DeltaScratch() = default;
  DeltaScratch(const DeltaRuleShape& heads, int rows, float* memory);
  /// The number of floats in the array: delta_scratch().
  static std::size_t size(const DeltaRuleShape& heads, int rows);

  /// [chunks, value_heads, kDeltaChunk]: cumulative log decays from the chunk's beginning.
  float* sums = nullptr;
  float* matrices = nullptr;  // [chunks, value_heads, 3, kDeltaChunk, kDeltaChunk]
  float* states = nullptr;    // [chunks, value_heads, key_dim, value_dim]: before each chunk
  float* updates = nullptr;   // [T, value_width]: what each token adds for its key
  float* dstates = nullptr;   // of the states after each chunk
  float* dupdates = nullptr;  // [T, value_width]
};

/// Operands of the rule. Head dimensions are multiples of 4, at most kMostRecurrentDim.
struct TrainingDelta {
  DeltaRuleShape heads;
  int rows = 0;                             // T
  const std::int32_t* first_key = nullptr;  // [T]: start of the document, with a zero state
  const float* mixed = nullptr;             // [T, channels]: queries, keys, values
  const float* rates = nullptr;             // [T, value_heads]
  const float* log_decays = nullptr;        // [T, value_heads]: at most 0
  DeltaScratch scratch;
};

/// Bytes of shared memory that a block needs for heads with `key_dim` key channels.
std::size_t training_delta_shared_memory(int key_dim);

/// out [T, value_width], rounded; null: only the data for backward is computed. Operands of
/// products are rounded to TF32, sums are floats.
void training_delta(const TrainingDelta& rule, bf16* out, cudaStream_t stream);

/// Backward of training_delta(), called directly after it with the same scratch, from the gradient
/// of out [T, value_width]. The same operands give the same bits.
void training_delta_backward(const TrainingDelta& rule, const float* dout,
                             const TrainingDeltaGradients& gradients, cudaStream_t stream);

}  // namespace winnow::ops::cuda
