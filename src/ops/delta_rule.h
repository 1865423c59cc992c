// The gated delta rule (Yang, Kautz and Hatamizadeh 2024): linear attention whose memory is a
// matrix per head that forgets, and that corrects what it recalls for a key.
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
  Matrix<const float> decays;   // [T, value_heads], the factor by which the state shrinks
  Matrix<const float> rates;    // [T, value_heads], how much of an error is corrected
  std::span<float> state;       // [state_size], before the chunk and then behind it
  Matrix<float> out;            // [T, value_width]
};

/// For each token, in each value head: with S = decay * S,
///   S += key (rate * (value - S^T key))^T, out = S^T query;
/// of a shape that does not correct, S += key (rate * value)^T.
/// One token after another: what a token gives does not depend on how a text is cut into chunks or
/// on which chunks share the call.
void delta_rule(const DeltaRuleShape& shape, std::span<const DeltaRuleChunk> chunks);

/// The gates [T, value_heads] of the rule, from logits, in place:
///   decay = exp(-exp(log_decay[h]) * softplus(logit + bias[h])), rate = sigmoid(logit).
void delta_gates(Matrix<float> decays, Matrix<float> rates, std::span<const float> log_decay,
                 std::span<const float> bias);

/// Between which rates of a state space stay.
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

/// Gradients of what a chunk takes.
struct DeltaRuleGradients {
  Matrix<float> queries;  // added to, as the next three
  Matrix<float> keys;
  Matrix<float> decays;
  Matrix<float> rates;
  Matrix<float> values;  // set
};

/// Backward of delta_rule() over whole texts, whose states were zeros before them: `chunks` as they
/// were taken (states and outputs are not looked at), `dout` the gradient of each one's result. The
/// same bits on any number of threads.
void delta_rule_backward(const DeltaRuleShape& shape, std::span<const DeltaRuleChunk> chunks,
                         std::span<const Matrix<const float>> dout,
                         std::span<const DeltaRuleGradients> gradients);

/// Backward of delta_gates(), whose results these are: converts their gradients to those of the
/// logits, in place, and adds to those of log_decay and bias (empty: not computed). `logits` are
/// those of the decays.
void delta_gates_backward(Matrix<float> ddecays, Matrix<float> drates, std::span<float> dlog_decay,
                          std::span<float> dbias, Matrix<const float> logits,
                          Matrix<const float> decays, Matrix<const float> rates,
                          std::span<const float> log_decay, std::span<const float> bias);

/// Backward of state_space_gates() in the same way: the gradient of the logits comes to lie in
/// `ddecays`.
void state_space_gates_backward(Matrix<float> ddecays, Matrix<const float> drates,
                                std::span<float> dlog_decay, std::span<float> dbias,
                                Matrix<const float> logits, Matrix<const float> decays,
                                Matrix<const float> rates, std::span<const float> log_decay,
                                std::span<const float> bias, const RateLimits& limits);

}  // namespace winnow::ops
