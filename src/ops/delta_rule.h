// The gated delta rule (Yang, Kautz and Hatamizadeh 2024): linear attention whose memory is a
// matrix per head. The memory decays, and it corrects the value that it recalls for a key.
#pragma once

#include <limits>
#include <span>

#include "ops/matrix.h"

namespace winnow::ops {

/// Value head h belongs to key head h / (value_heads / key_heads).
struct DeltaRuleShape {
  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  bool corrects = true;  // false: values are added as they are (Mamba 2)

  [[nodiscard]] int key_width() const { return key_heads * key_dim; }
  [[nodiscard]] int value_width() const { return value_heads * value_dim; }
  /// Floats of the state: S [value_heads, key_dim, value_dim].
  [[nodiscard]] int state_size() const { return value_heads * key_dim * value_dim; }

  bool operator==(const DeltaRuleShape&) const = default;
};

/// The next T tokens of one sequence.
struct DeltaRuleChunk {
  Matrix<const float> queries;  // [T, key_width]
  Matrix<const float> keys;     // [T, key_width]
  Matrix<const float> values;   // [T, value_width]
  Matrix<const float> decays;   // [T, value_heads], the factor by which the state decays
  Matrix<const float> rates;    // [T, value_heads], the share of an error that is corrected
  std::span<float> state;       // [state_size], in: before the chunk, out: after it
  Matrix<float> out;            // [T, value_width]
};

/// For each token, in each value head: with S = decay * S,
///   S += key (rate * (value - S^T key))^T, out = S^T query;
/// for a shape that does not correct, S += key (rate * value)^T.
/// Tokens are processed in order: a token's result does not depend on how a text is split into
/// chunks or on which chunks share the call.
void delta_rule(const DeltaRuleShape& shape, std::span<const DeltaRuleChunk> chunks);

/// The gates [T, value_heads] of the rule, from logits, in place:
///   decay = exp(-exp(log_decay[h]) * softplus(logit + bias[h])), rate = sigmoid(logit).
void delta_gates(Matrix<float> decays, Matrix<float> rates, std::span<const float> log_decay,
                 std::span<const float> bias);

/// The range to which the rates of a state space are clamped.
struct RateLimits {
  float lowest = 0.0F;
  float highest = std::numeric_limits<float>::infinity();

  bool operator==(const RateLimits&) const = default;
};

/// The gates [T, value_heads] of a state space (Dao and Gu 2024), from logits in `decays`, in
/// place:
///   rate = clamp(softplus(logit + bias[h])), decay = exp(-exp(log_decay[h]) * rate).
void state_space_gates(Matrix<float> decays, Matrix<float> rates, std::span<const float> log_decay,
                       std::span<const float> bias, const RateLimits& limits);

/// Gradients of a chunk's operands.
struct DeltaRuleGradients {
  Matrix<float> queries;  // added to, like the next three
  Matrix<float> keys;
  Matrix<float> decays;
  Matrix<float> rates;
  Matrix<float> values;  // set
};

/// Backward of delta_rule() over whole texts that started from zero states: `chunks` as passed to
/// delta_rule() (states and outputs are ignored), `dout` the gradient of each one's result. The
/// result has the same bits on any number of threads.
void delta_rule_backward(const DeltaRuleShape& shape, std::span<const DeltaRuleChunk> chunks,
                         std::span<const Matrix<const float>> dout,
                         std::span<const DeltaRuleGradients> gradients);

/// Backward of delta_gates(), given its results: converts their gradients to those of the logits,
/// in place, and adds to the gradients of log_decay and bias (empty: not computed). `logits` are
/// the decays' logits.
void delta_gates_backward(Matrix<float> ddecays, Matrix<float> drates, std::span<float> dlog_decay,
                          std::span<float> dbias, Matrix<const float> logits,
                          Matrix<const float> decays, Matrix<const float> rates,
                          std::span<const float> log_decay, std::span<const float> bias);

/// Backward of state_space_gates() in the same way: the gradient of the logits is written to
/// `ddecays`.
void state_space_gates_backward(Matrix<float> ddecays, Matrix<const float> drates,
                                std::span<float> dlog_decay, std::span<float> dbias,
                                Matrix<const float> logits, Matrix<const float> decays,
                                Matrix<const float> rates, std::span<const float> log_decay,
                                std::span<const float> bias, const RateLimits& limits);

}  // namespace winnow::ops
