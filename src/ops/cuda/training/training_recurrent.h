// The steps around the delta rule in a recurrent layer that is trained on the device (its
// RecurrentSpec, model/spec.h): before it the convolution, SiLU, lengths and gates; after it norms
// and gates of outputs. Packed documents at once, forward and backward.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"
#include "ops/cuda/training/training_delta.h"

namespace winnow::ops::cuda {

/// A layer's projections, and its weights.
struct TrainingRecurrent {
  DeltaRuleShape heads;
  /// Whether projections are stored key head by key head: q, k, v and output gates; rates and
  /// decays (model::split_recurrent). Else all queries come first, and so on.
  bool joined = false;
  int rows = 0;                             // T
  const std::int32_t* first_key = nullptr;  // [T]: start of the document, the first visible token
  const bf16* projected = nullptr;          // [T, channels + value_width]
  const float* logits = nullptr;            // [T, logit_stride]: of rates and decays
  int logit_stride = 0;
  const float* taps = nullptr;  // [channels, tap_count]
  int tap_count = 0;
  const float* log_decay = nullptr;   // [value_heads]
  const float* decay_bias = nullptr;  // [value_heads]
  const float* norm = nullptr;        // [value_dim]
  float eps = 0.0F;                   // the norm's
};

/// Gradients of the projections, which are overwritten, and of weights, which are added to in any
/// order; null: not computed.
struct TrainingRecurrentGradients {
  bf16* projected = nullptr;
  bf16* logits = nullptr;
  float* taps = nullptr;
  float* log_decay = nullptr;
  float* decay_bias = nullptr;
  float* norm = nullptr;
};

/// The operands of training_delta(): mixed [T, channels], rates and log_decays [T, value_heads].
void recurrent_inputs(const TrainingRecurrent& layer, float* mixed, float* rates, float* log_decays,
                      cudaStream_t stream);

/// Its backward, from the gradients of its results: all of `gradients` except those of output gates
/// and the norm. `dconvolved` [T, channels] is scratch.
void recurrent_inputs_backward(const TrainingRecurrent& layer,
                               const TrainingDeltaGradients& of_inputs, float* dconvolved,
                               const TrainingRecurrentGradients& gradients, cudaStream_t stream);

/// out [T, value_width] = silu(gate) * norm(recalled), normed by head.
void recurrent_outputs(const TrainingRecurrent& layer, bf16* out, const bf16* recalled,
                       cudaStream_t stream);

/// Its backward: writes drecalled [T, value_width] and, in `gradients`, those of output gates and
/// the norm.
void recurrent_outputs_backward(const TrainingRecurrent& layer, float* drecalled, const bf16* dout,
                                const bf16* recalled, const TrainingRecurrentGradients& gradients,
                                cudaStream_t stream);

/// Attention whose outputs have gates: the query projection has each head's query and then its
/// gate.
struct TrainingOutputGates {
  int rows = 0;
  int heads = 0;
  int head_dim = 0;
  int stride = 0;                   // from row to row of `projected`
  const bf16* projected = nullptr;  // [rows, heads, query and gate]
  const float* bias = nullptr;      // [heads, query and gate] or null
};

/// out = attended * sigmoid(gate), [rows, heads * head_dim].
void gate_attended(const TrainingOutputGates& gates, bf16* out, const bf16* attended,
                   cudaStream_t stream);

/// Its backward: the gradient of out, `gradient`, becomes that of `attended`; dprojected receives
/// those of the gates.
void gate_attended_backward(const TrainingOutputGates& gates, bf16* gradient, bf16* dprojected,
                            const bf16* attended, cudaStream_t stream);

}  // namespace winnow::ops::cuda
