// Recurrent token mixers: a state of fixed size in the place of entries.
#pragma once

#include <cstdint>

#include "ops/delta_rule.h"

namespace winnow::model {

/// Of what a state space projects, before anything else, and of its output (Falcon-H1).
struct StateSpaceMultipliers {
  float gates = 1.0F;
  float values = 1.0F;
  float keys = 1.0F;
  float queries = 1.0F;
  float rates = 1.0F;
  float output = 1.0F;

  bool operator==(const StateSpaceMultipliers&) const = default;
};

/// A mixer that keeps a state of fixed size instead of entries. Queries, keys and values pass a
/// causal convolution of each channel.
struct RecurrentSpec {
  /// delta_net   linear attention by the gated delta rule (Qwen3-Next): SiLU follows the
  ///             convolution, queries and keys become of length 1; the output of each value head is
  ///             normed and multiplied by the SiLU of a projection
  /// short_conv  the convolution alone (LFM2): what it takes is multiplied by one projection, what
  ///             it gives by another. Each channel is a value head, and there are no keys
  /// state_space Mamba 2 (Dao and Gu 2024): SiLU follows the convolution, nothing is corrected; a
  ///             multiple of each head's values is added to the output, which is multiplied by the
  ///             SiLU of a projection and normed by groups of channels. What the convolution takes
  ///             lies as values, keys, queries
  enum class Kind : std::uint8_t { delta_net, short_conv, state_space };
  /// How a state space ends: the output times its gates, with a norm behind or before that.
  enum class Norm : std::uint8_t { none, before_gates, behind_gates };

  Kind kind = Kind::delta_net;
  ops::DeltaRuleShape heads;
  int taps = 0;                    // of the convolution
  bool conv_bias = false;          // added to its outputs
  Norm norm = Norm::behind_gates;  // of a state space, as the next
  int norm_groups = 1;
  StateSpaceMultipliers multipliers{};
  ops::RateLimits rates{};  // of a state space

  /// Channels that pass the convolution: queries, keys and values.
  [[nodiscard]] int channels() const { return 2 * heads.key_width() + heads.value_width(); }
  /// Whether states have a matrix for each head, with a rate and a decay of each token.
  [[nodiscard]] bool has_matrices() const { return kind != Kind::short_conv; }
  /// Whether a projection multiplies what the convolution takes.
  [[nodiscard]] bool gates_input() const { return kind == Kind::short_conv; }
  /// Projections of the layer's input that give a number for each value head.
  [[nodiscard]] int gates_of_heads() const {
    return kind == Kind::delta_net ? 2 : kind == Kind::state_space ? 1 : 0;
  }
  /// Outputs of all projections of the layer's input.
  [[nodiscard]] int projected() const {
    return channels() * (gates_input() ? 2 : 1) + heads.value_width() +
           gates_of_heads() * heads.value_heads;
  }
  /// The first channel of queries, keys and values among those that pass the convolution.
  [[nodiscard]] int first_query() const {
    return kind == Kind::state_space ? heads.value_width() + heads.key_width() : 0;
  }
  [[nodiscard]] int first_key() const {
    return kind == Kind::state_space ? heads.value_width() : heads.key_width();
  }
  [[nodiscard]] int first_value() const {
    return kind == Kind::state_space ? 0 : 2 * heads.key_width();
  }
  /// Floats that a sequence keeps: the matrices of all heads, and the last inputs of the
  /// convolution.
  [[nodiscard]] int state_size() const { return heads.state_size() + (taps - 1) * channels(); }

  bool operator==(const RecurrentSpec&) const = default;
};

}  // namespace winnow::model
