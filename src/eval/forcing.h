// Teacher forcing: feeds many sequences of known tokens together, and returns logits after each.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "api/llm_load.h"
#include "engine/runner.h"

namespace winnow::eval {

/// The tokens that one step takes from a sequence.
struct ForcedShare {
  std::size_t sequence = 0;
  std::size_t tokens = 0;
};

/// The logits after the token at `position` of a sequence.
struct ForcedRow {
  std::size_t sequence = 0;
  std::size_t position = 0;
  std::span<const float> logits;  // [vocab], valid until the next step
};

/// The token capacity for Backend::make_runner(): for `sequences` of `length` tokens, each with its
/// own window and partially filled pages.
int most_tokens(const kvcache::CacheConfig& cache, int sequences, int length);

/// Computes like the engine, without sampling. `model` must outlive it.
class Forcing {
 public:
  /// At most `sequences` of at most `length` tokens may be open at a time.
  Forcing(const engine::LoadedModel& model, int sequences, int length);

  /// A new sequence, fed from its first token. Logits are returned from position `first_row` on.
  std::size_t open(std::vector<std::int32_t> tokens, const kvcache::SequenceLimits& limits,
                   std::size_t first_row);
  /// A continuation of a sequence that has been fed completely, sharing its pages: its tokens so
  /// far, then `tokens`.
  std::size_t fork(std::size_t sequence, std::span<const std::int32_t> tokens,
                   std::size_t first_row);
  /// Appends a token to a sequence.
  void append(std::size_t sequence, std::int32_t token);
  /// Frees a sequence's cache; its number is not used again.
  void close(std::size_t sequence);

  /// The shares of the next step; empty when everything has been fed.
  [[nodiscard]] std::vector<ForcedShare> plan() const;
  /// Feeds these shares, and returns the requested rows. Throws Error when the cache is full.
  std::vector<ForcedRow> step(std::span<const ForcedShare> shares);

  [[nodiscard]] std::span<const std::int32_t> tokens(std::size_t sequence) const {
    return lanes_[sequence].tokens;
  }
  /// The current contents of the sequence's cache.
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
