// The layout of mixers' projections, and operations on the heads of recurrent mixers. Inference and
// training share them.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "model/spec.h"
#include "ops/matrix.h"

namespace winnow::model {

/// `count` columns from `first` on.
template <class T>
ops::Matrix<T> columns(ops::Matrix<T> x, int first, int count) {
  return {x.data + first, x.rows, static_cast<std::size_t>(count), x.stride};
}

/// RMSNorm of each of so many equal groups of channels of x [T, N], in place; weight [N].
void norm_groups(int groups, ops::Matrix<float> x, std::span<const float> weight, float eps);

/// Adds a multiple of each head's values to a state space's output [T, value width].
void add_skip(const ops::DeltaRuleShape& heads, std::span<const float> skip,
              ops::Matrix<const float> values, ops::Matrix<float> out);

/// Attention with output gates projects queries and gates together, each head's query before its
/// gate. Splits them into two [T, heads * head_dim].
void split_output_gates(int head_dim, ops::Matrix<const float> projected,
                        ops::Matrix<float> queries, ops::Matrix<float> gates);
/// The other way round.
void join_output_gates(int head_dim, ops::Matrix<float> projected, ops::Matrix<const float> queries,
                       ops::Matrix<const float> gates);

/// wide [T, heads * wide_dim] = x [T, heads * head_dim], each head padded with zeros.
void widen_heads(ops::Matrix<const float> x, int head_dim, ops::Matrix<float> wide, int wide_dim);
/// The other way round; the padding is dropped.
void narrow_heads(ops::Matrix<const float> wide, int wide_dim, ops::Matrix<float> x, int head_dim);

/// Queries, keys and values [T, channels] of a recurrent mixer, and its gates.
struct RecurrentProjections {
  ops::Matrix<float> input;   // [T, channels]
  ops::Matrix<float> gates;   // [T, value width]
  ops::Matrix<float> rates;   // [T, value heads], logits
  ops::Matrix<float> decays;  // [T, value heads], logits
};

/// Splits the outputs of joined projections (TensorNames): `all` has q, k, v and gates, `small` has
/// rates and decays, both key head by key head.
void split_recurrent(const ops::DeltaRuleShape& heads, ops::Matrix<float> all,
                     ops::Matrix<float> small, const RecurrentProjections& parts);
/// The other way round.
void join_recurrent(const ops::DeltaRuleShape& heads, ops::Matrix<float> all,
                    ops::Matrix<float> small, const RecurrentProjections& parts);

/// Weight and epsilon with which ops::rms_norm norms each head of a recurrent mixer's queries or
/// keys to a length.
struct LengthNorm {
  LengthNorm(int head_dim, float length);
  std::vector<float> weight;  // [head_dim]
  float eps;
};
/// Keys get length 1; queries a length so that scores do not grow with the number of channels.
LengthNorm query_length(const ops::DeltaRuleShape& heads);
LengthNorm key_length(const ops::DeltaRuleShape& heads);

}  // namespace winnow::model
