// Decisions in training: from logits to the bias of attention, and back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"
#include "ops/matrix.h"
#include "train/far_dropout.h"

namespace winnow::train {

/// How one pass decides, and what it hides. Rows [T, D] below have one column per decision:
/// kv_heads of them, or one when the model decides per layer.
struct DecisionPass {
  enum class Mode : std::uint8_t {
    off,      // nothing is evicted; a borrowed channel keeps its original role, scaled by `fade`
    sampled,  // Gumbel-sigmoid
    hard,     // as at inference
  };
  Mode mode = Mode::off;
  float fade = 1.0F;                        // mode off: the borrowed channel's factor
  float tau = 0.1F;                         // sampled: temperature
  std::uint64_t noise = 0;                  // the seed of all random numbers of this pass
  int merge_span = 12;                      // DMC: window of a running average, in entries
  const FarDropout* far_dropout = nullptr;  // of a model without compression; null: none
};

/// Loss terms for decisions, as factors of gradients.
struct DecisionLoss {
  float count = 0.0F;   // d loss / d (number of keys marked), straight-through
  float excess = 0.0F;  // loss per decision: excess * max(|logit| - limit, 0)^2
  float excess_limit = 6.0F;
  std::vector<float> spread = {};  // [decisions]: added to each one's `count`; empty: nothing
};

/// Whether KV head 0 decides for all heads of a layer.
bool decides_per_layer(const model::ModelSpec& spec);
/// Decisions of a layer: 1, or one per KV head.
std::size_t decision_count(const model::ModelSpec& spec);
/// Decisions of all layers; 0: the model does not decide.
std::size_t decisions_of_model(const model::ModelSpec& spec);
/// The shift between a token and the key that its decision concerns: DMS's shift, and 1 for DMC,
/// where a token that opens a segment leaves the previous entry unchanged.
int decision_shift(const model::ModelSpec& spec);

/// Converts values that encode decisions to logits: scale * x - offset.
void to_logits(const model::ModelSpec& spec, ops::Matrix<float> x);
/// d logit / d x.
float logit_scale(const model::ModelSpec& spec);

/// From logits [T, D] to `noisy`, whose sign is the decision, and `bias` [T, D] = log(1 - alpha).
void take_decisions(const DecisionPass& pass, int layer, ops::Matrix<float> noisy,
                    ops::Matrix<float> bias, ops::Matrix<const float> logits);

/// Backward of take_decisions with mode `sampled`: dlogits += the gradient from dbias and from
/// `loss`.
void take_decisions_backward(const DecisionPass& pass, const DecisionLoss& loss,
                             ops::Matrix<float> dlogits, ops::Matrix<const float> dbias,
                             ops::Matrix<const float> noisy, ops::Matrix<const float> logits);

/// Fixed pooling (model::DmcConfig::pooled) instead of take_decisions: documents are cut every
/// `pooled` tokens, and no gradient comes back.
void take_pooled(int pooled, std::span<const std::int32_t> first_key, ops::Matrix<float> noisy,
                 ops::Matrix<float> bias);

/// alphas [T, kv_heads] from `noisy` [T, D]: soft, or with mode `hard` 0 or 1.
void to_alphas(const DecisionPass& pass, ops::Matrix<float> alphas, ops::Matrix<const float> noisy);
/// Backward of to_alphas and sampling, mode `sampled`: dlogits += ...
void to_alphas_backward(const DecisionPass& pass, ops::Matrix<float> dlogits,
                        ops::Matrix<const float> dalphas, ops::Matrix<const float> alphas);

/// Moves decisions from the deciding token to the key: keys [T, kv_heads] row j = decided row
/// j + shift of the same document; 0 (kept) if there is no such row.
void align_to_keys(int shift, std::span<const std::int32_t> first_key, ops::Matrix<float> keys,
                   ops::Matrix<const float> decided);

/// Backward of align_to_keys: replaces `decided` [T, D] by the gradient from `keys` [T, kv_heads].
void align_to_keys_backward(int shift, std::span<const std::int32_t> first_key,
                            ops::Matrix<float> decided, ops::Matrix<const float> keys);

/// sum of max(|logit| - limit, 0)^2.
double excess_of(ops::Matrix<const float> logits, float limit);

}  // namespace winnow::train
