// The decoder-only transformer: tokens in, logits out, keys and values into the cache.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "checkpoint/config.h"
#include "kvcache/attend.h"
#include "kvcache/drawn_decisions.h"
#include "kvcache/sequence_cache.h"
#include "model/decision.h"
#include "model/weights.h"
#include "ops/context.h"
#include "ops/matrix.h"
#include "ops/rope.h"

namespace winnow::model {

/// The next tokens of one sequence in a step.
struct SequenceStep {
  kvcache::SequenceCache* cache = nullptr;
  std::span<const std::int32_t> tokens;
  /// Logits of the last `logit_rows` tokens are computed.
  std::size_t logit_rows = 1;
  /// Optional [T, layers * kv_heads]: receives how many entries each token's query saw.
  ops::Matrix<std::int32_t> visible;
  /// Optional, of one token: row l receives its weights in layer l (kvcache::LayerChunk::weights).
  ops::Matrix<float> weights = {};
};

/// Llama, Qwen2, Qwen3 and Mistral, dense or retrofitted with DMS or DMC.
class Model {
 public:
  Model(ModelConfig config, Weights weights);

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const Weights& weights() const { return weights_; }
  [[nodiscard]] kvcache::CacheShape cache_shape() const;

  /// For benchmarks of untrained shapes: these take the place of what the model decides.
  void draw_decisions(const kvcache::DrawnDecisions& drawn) { drawn_ = drawn; }
  [[nodiscard]] const std::optional<kvcache::DrawnDecisions>& drawn_decisions() const {
    return drawn_;
  }

  /// Runs one step: appends every sequence's tokens to its cache and writes the logits that were
  /// asked for, sequence after sequence, to `logits` [sum of logit_rows, vocab].
  void forward(ops::Context& context, std::span<const SequenceStep> steps,
               ops::Matrix<float> logits) const;

 private:
  struct Activations;

  void embed(std::span<const SequenceStep> steps, ops::Matrix<float> hidden) const;
  void attention(ops::Context& context, int layer, std::span<const SequenceStep> steps,
                 Activations& a) const;
  [[nodiscard]] std::vector<kvcache::LayerChunk> chunks_of(int layer,
                                                           std::span<const SequenceStep> steps,
                                                           const Activations& a) const;
  void mlp(ops::Context& context, int layer, const Activations& a) const;
  void decide(ops::Context& context, int layer, std::span<const SequenceStep> steps,
              const Activations& a) const;
  void draw(int layer, std::span<const SequenceStep> steps, const Decisions& decisions) const;
  static void pool(const DmcConfig& dmc, int layer, std::span<const SequenceStep> steps,
                   const Decisions& decisions);

  ModelConfig config_;
  Weights weights_;
  std::vector<float> frequencies_;
  std::optional<kvcache::DrawnDecisions> drawn_;
};

}  // namespace winnow::model
