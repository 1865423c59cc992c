// Decisions in training on the device: from the channels that they are read from to the bias of
// keys, and back.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"

namespace winnow::ops::cuda {

/// Operands of forward and backward. A decision of token t is about key t - shift of the same
/// document (docs/method.md).
struct TrainingDecisions {
  int rows = 0;  // T
  int kv_heads = 0;
  int decisions = 0;  // per token: kv_heads, or 1 that applies to all heads
  int shift = 0;
  const std::int32_t* first_key = nullptr;  // [T]: where the token's document begins
  float scale = 1.0F;                       // logit = scale * read - offset
  float offset = 0.0F;
  const float* read = nullptr;  // [T, stride]
  int stride = 0;
  int pooled = 0;       // > 0: nothing is read, documents are split every `pooled` tokens
  bool sampled = true;  // with logistic noise, divided by tau; else hard
  float tau = 0.1F;
  /// Seed of this pass, in device memory. The noise equals ops/sampled_decisions.h's: element i of
  /// the stream `layer` of Random(*noise).
  const std::uint64_t* noise = nullptr;
  int layer = 0;
};

/// The results of a forward pass.
struct DecisionResults {
  float* logits = nullptr;    // [T, decisions]
  float* noisy = nullptr;     // [T, decisions]: the sign decides
  float* key_bias = nullptr;  // [T, kv_heads]: log(1 - alpha) of the key's decision; 0: none
  float* alphas = nullptr;    // [T, kv_heads], soft or hard; null: not wanted (DMC wants them)
  unsigned long long* marked = nullptr;  // [decisions]: how many are 1, added to; null: not wanted
};
void take_decisions(const TrainingDecisions& decisions, const DecisionResults& results,
                    cudaStream_t stream);

/// The loss's terms for a decision of a layer: train::DecisionLoss.
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

/// x [rows, heads]: copies the first head's value to all heads.
void share_first_head(float* x, int rows, int heads, cudaStream_t stream);
/// Its backward: the first head's gradient becomes the sum, the others' 0.
void share_first_head_backward(float* dx, int rows, int heads, cudaStream_t stream);

}  // namespace winnow::ops::cuda
