// One sequence driven by hand: for callers that want every logit, not just the next token.
#pragma once

#include <cstdint>
#include <span>

#include "engine/engine.h"
#include "kvcache/sequence_cache.h"
#include "model/model.h"

namespace winnow::engine {

/// Computes as the engine does. `model` must outlive the session.
class Session {
 public:
  Session(const model::Model& model, const EngineConfig& config,
          const kvcache::SequenceLimits& limits);

  /// Appends `tokens`. `logits` [rows, vocab] receives those of the last tokens (none when empty);
  /// `visible` [tokens, layers * kv_heads], if given, how many entries each query saw. Throws Error
  /// when the cache has no room.
  void feed(std::span<const std::int32_t> tokens, std::span<float> logits,
            std::span<std::int32_t> visible = {});

  [[nodiscard]] const kvcache::SequenceCache& sequence() const { return sequence_; }

 private:
  const model::Model* model_;
  kvcache::Cache cache_;
  kvcache::SequenceCache sequence_;
  ops::Workspace workspace_;
  ops::Context context_;
};

}  // namespace winnow::engine
