// How much a model needs each entry of a text to repeat it: the scores that a KVzap probe learns.
#pragma once

#include <span>
#include <vector>

#include "model/model.h"
#include "ops/context.h"
#include "ops/matrix.h"
#include "train/probe/repetition.h"

namespace winnow::train {

/// Scores the entries of one layer as KVzip+ does. The score of entry i in KV head h is
///   log max over j, g of  a_gj(i) |W_g v_i| / |x_j|
/// j: the tokens of the repetition; g: the query heads of h; a_gj(i): the attention weight; W_g:
/// the columns of the output projection that take head g; v_i: the value; x_j: what attention
/// reads.
class KvzipScorer {
 public:
  /// Both must outlive this.
  KvzipScorer(const model::AttentionSpec& attention, const model::LayerWeights& weights);

  /// out [repetition.length, kv_heads]; `inputs` has all tokens of the repetition.
  void score(ops::Context& context, const model::AttentionInputs& inputs,
             const Repetition& repetition, ops::Matrix<float> out) const;

 private:
  [[nodiscard]] std::vector<float> log_weights(ops::Context& context,
                                               const model::AttentionInputs& inputs,
                                               const Repetition& repetition, int head) const;
  [[nodiscard]] float log_value_norm(std::size_t head, std::span<const float> value) const;

  const model::AttentionSpec& attention_;
  const model::LayerWeights& weights_;
  std::vector<std::vector<float>> grams_;  // of each query head: W_g^T W_g [value_dim, value_dim]
};

}  // namespace winnow::train
