// Decisions while training on the device: from what they are read from to the bias of keys, and
// back.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"

namespace winnow::ops::cuda {

/// What forward and backward share. A decision of token t concerns key t - shift of the same
/// document (docs/method.md).
struct TrainingDecisions {
  int rows = 0;  // T
  int kv_heads = 0;
  int decisions = 0;  // of a token: kv_heads, or 1 that counts for all heads
  int shift = 0;
  const std::int32_t* first_key = nullptr;  // [T]: where the token's document begins
  float scale = 1.0F;                       // logit = scale * read - offset
  float offset = 0.0F;
  const float* read = nullptr;  // [T, stride]
  int stride = 0;
  int pooled = 0;       // > 0: nothing is read, documents are cut every so many tokens
  bool sampled = true;  // with logistic noise, divided by tau; else hard
  float tau = 0.1F;
  /// Seed of this pass, in device memory. Noise is that of ops/sampled_decisions.h: element i of
  /// the stream `layer` of Random(*noise).
  const std::uint64_t* noise = nullptr;
  int layer = 0;
};

/// What a pass leaves.
struct DecisionResults {
  float* logits = nullptr;    // [T, decisions]
  float* noisy = nullptr;     // [T, decisions]: the sign decides
  float* key_bias = nullptr;  // [T, kv_heads]: log(1 - alpha) of what concerns the key; 0: nothing
  float* alphas = nullptr;    // [T, kv_heads], soft or hard; null: not wanted (DMC wants them)
  unsigned long long* marked = nullptr;  // [decisions]: how many are 1, added to; null: not wanted
};
void take_decisions(const TrainingDecisions& decisions, const DecisionResults& results,
                    cudaStream_t stream);

/// What the loss adds for a decision of a layer: train::DecisionLoss.
struct DecisionFactors {
  float count = 0.0F;   // per key marked, straight through
  float excess = 0.0F;  // times max(|logit| - excess_limit, 0)^2
  float excess_limit = 0.0F;
};

struct DecisionGradients {
  const float* key_bias = nullptr;        // [T, kv_heads]
  const float* alphas = nullptr;          // [T, kv_heads], or null
  const DecisionFactors* loss = nullptr;  // [decisions], in device memory
  float* read = nullptr;                  // [T, kv_heads], replaced
  /// The same [T, rounded_stride], replaced, 0 beyond `decisions`; null: not wanted.
  bf16* rounded = nullptr;
  int rounded_stride = 0;
};

/// Backward of take_decisions with `sampled`, given its results.
void take_decisions_backward(const TrainingDecisions& decisions, const DecisionResults& results,
                             const DecisionGradients& gradients, cudaStream_t stream);

/// x [rows, heads]: the first head's becomes everybody's.
void share_first_head(float* x, int rows, int heads, cudaStream_t stream);
/// Backward of it: the first head's becomes the sum, the others' 0.
void share_first_head_backward(float* dx, int rows, int heads, cudaStream_t stream);

}  // namespace winnow::ops::cuda
