// Many sequences whose tokens are known, fed to a model together, and the logits behind each token.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "api/llm_load.h"
#include "engine/runner.h"

namespace winnow::eval {

/// The tokens that one step takes from each sequence; every sequence gets a share.
struct ForcedShare {
  std::size_t sequence = 0;
  std::size_t tokens = 0;
};

/// The logits after the token at `position` of a sequence.
struct ForcedRow {
  std::size_t sequence = 0;
  std::size_t position = 0;
  std::span<const float> logits;  // [vocab], until the next step
};

/// What to ask Backend::make_runner() for: `sequences` of `length` tokens, each with a window and
/// pages of its own that are not full.
int most_tokens(const kvcache::CacheConfig& cache, int sequences, int length);

/// Computes as the engine does, without sampling. `model` must outlive it.
class Forcing {
 public:
  /// At most `sequences` of at most `length` tokens are open at a time.
  Forcing(const engine::LoadedModel& model, int sequences, int length);

  /// A new sequence, fed from its first token on. Logits are given from position `first_row` on.
  std::size_t open(std::vector<std::int32_t> tokens, const kvcache::SequenceLimits& limits,
                   std::size_t first_row);
  /// A continuation of a sequence that has been fed whole, sharing its pages: its tokens so far,
  /// then `tokens`.
  std::size_t fork(std::size_t sequence, std::span<const std::int32_t> tokens,
                   std::size_t first_row);
  /// More tokens for a sequence.
  void append(std::size_t sequence, std::int32_t token);
  /// Gives a sequence's cache back; its number is not used again.
  void close(std::size_t sequence);

  /// What the next step would take; empty when everything has been fed.
  [[nodiscard]] std::vector<ForcedShare> plan() const;
  /// Feeds this, and returns the rows that were asked for. Throws Error when the cache has no room.
  std::vector<ForcedRow> step(std::span<const ForcedShare> shares);

  [[nodiscard]] std::span<const std::int32_t> tokens(std::size_t sequence) const {
    return lanes_[sequence].tokens;
  }
  /// What the sequence's cache holds now.
  [[nodiscard]] engine::CacheUsage usage(std::size_t sequence) const {
    return lanes_[sequence].state->usage();
  }

 private:
  struct Lane {
    std::unique_ptr<engine::SequenceState> state;
    std::vector<std::int32_t> tokens;
    std::size_t first_row = 0;
    [[nodiscard]] std::size_t fed() const { return static_cast<std::size_t>(state->length()); }
    [[nodiscard]] std::size_t pending() const { return state ? tokens.size() - fed() : 0; }
  };

  [[nodiscard]] static std::size_t rows_of(const Lane& lane, std::size_t tokens);

  const engine::LoadedModel& model_;
  std::size_t vocab_;
  std::unique_ptr<engine::Runner> runner_;
  std::vector<Lane> lanes_;
  Buffer<float> logits_;
};

}  // namespace winnow::eval
