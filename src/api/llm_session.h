// Runs one sequence step by step, for callers that want every logit, not just the next token.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/engine.h"
#include "engine/runner.h"

namespace winnow::engine {

/// Computes like the engine. `backend` must outlive the session.
class Session {
 public:
  Session(const Backend& backend, const EngineConfig& config,
          const kvcache::SequenceLimits& limits);

  /// Appends `tokens`. `logits` [rows, vocab] receives the logits of the last `rows` tokens; it may
  /// be empty. `visible` [tokens, layers * kv_heads], if given, receives the number of entries that
  /// each query saw. Throws Error when the cache has no room.
  void feed(std::span<const std::int32_t> tokens, std::span<float> logits,
            std::span<std::int32_t> visible = {});

  /// What the cache holds now.
  [[nodiscard]] CacheUsage usage() const { return sequence_->usage(); }

 private:
  const model::ModelSpec& config_;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<SequenceState> sequence_;
};

}  // namespace winnow::engine
