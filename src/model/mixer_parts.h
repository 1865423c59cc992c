// Where the parts of what mixers project lie, and what becomes of a recurrent mixer's heads: what
// inference and training share.
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

/// Adds to out [T, value width] of a state space a multiple of each head's values.
void add_skip(const ops::DeltaRuleShape& heads, std::span<const float> skip,
              ops::Matrix<const float> values, ops::Matrix<float> out);

/// Attention with output gates projects both [T, heads * head_dim], each head's query before its
/// gate: takes them apart.
void split_output_gates(int head_dim, ops::Matrix<const float> projected,
                        ops::Matrix<float> queries, ops::Matrix<float> gates);
/// The other way round.
void join_output_gates(int head_dim, ops::Matrix<float> projected, ops::Matrix<const float> queries,
                       ops::Matrix<const float> gates);

/// wide [T, heads * wide_dim] = x [T, heads * head_dim], each head with zeros behind its channels.
void widen_heads(ops::Matrix<const float> x, int head_dim, ops::Matrix<float> wide, int wide_dim);
/// The other way round; what is behind the channels is left out.
void narrow_heads(ops::Matrix<const float> wide, int wide_dim, ops::Matrix<float> x, int head_dim);

/// Queries, keys and values [T, channels] of a recurrent mixer, and its gates.
struct RecurrentProjections {
  ops::Matrix<float> input;   // [T, channels]
  ops::Matrix<float> gates;   // [T, value width]
  ops::Matrix<float> rates;   // [T, value heads], logits
  ops::Matrix<float> decays;  // [T, value heads], logits
};

/// Files that join projections (TensorNames) project, key head by key head, q, k, v and gates
/// side by side (`all`), rates and decays side by side (`small`): takes them apart.
void split_recurrent(const ops::DeltaRuleShape& heads, ops::Matrix<float> all,
                     ops::Matrix<float> small, const RecurrentProjections& parts);
/// The other way round.
void join_recurrent(const ops::DeltaRuleShape& heads, ops::Matrix<float> all,
                    ops::Matrix<float> small, const RecurrentProjections& parts);

/// Queries and keys of a recurrent mixer are normed by head to a length: the weight and epsilon
/// with which ops::rms_norm does so.
struct LengthNorm {
  LengthNorm(int head_dim, float length);
  std::vector<float> weight;  // [head_dim]
  float eps;
};
/// The lengths: of keys 1, of queries so that scores do not grow with their channels.
LengthNorm query_length(const ops::DeltaRuleShape& heads);
LengthNorm key_length(const ops::DeltaRuleShape& heads);

}  // namespace winnow::model
