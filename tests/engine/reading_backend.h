// A backend that counts the tokens that its sequences take.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "engine/runner.h"

namespace winnow::engine::testing {

/// Does what another backend does, and counts.
class ReadingBackend : public Backend {
 public:
  struct Counts {
    int steps = 0;
    std::size_t tokens = 0;
    std::size_t widest = 0;  // tokens in one step
    std::size_t most_sequences = 0;
  };

  explicit ReadingBackend(const Backend& inner) : inner_(inner) {}
  [[nodiscard]] Counts take() const { return std::exchange(*counts_, {}); }

  [[nodiscard]] const model::ModelSpec& spec() const override { return inner_.spec(); }
  [[nodiscard]] kvcache::CacheShape cache_shape() const override { return inner_.cache_shape(); }
  [[nodiscard]] std::size_t weight_bytes_per_step(int sequences) const override {
    return inner_.weight_bytes_per_step(sequences);
  }
  [[nodiscard]] double read_bandwidth() const override { return inner_.read_bandwidth(); }
  [[nodiscard]] std::optional<std::size_t> memory_in_use() const override {
    return inner_.memory_in_use();
  }
  [[nodiscard]] std::unique_ptr<engine::Runner> make_runner(const EngineConfig& config,
                                                            int tokens) const override {
    return std::make_unique<Runner>(inner_.make_runner(config, tokens), *counts_);
  }

 private:
  class Runner : public engine::Runner {
   public:
    Runner(std::unique_ptr<engine::Runner> inner, Counts& counts)
        : inner_(std::move(inner)), counts_(counts) {}
    std::unique_ptr<SequenceState> open(const kvcache::SequenceLimits& limits) override {
      return inner_->open(limits);
    }
    std::unique_ptr<SequenceState> restore(const kvcache::SequenceLimits& limits,
                                           const kvcache::SavedSequence& saved) override {
      return inner_->restore(limits, saved);
    }
    [[nodiscard]] kvcache::PageNeed need(const SequenceState& sequence, int tokens) const override {
      return inner_->need(sequence, tokens);
    }
    [[nodiscard]] bool has_room(const kvcache::PageNeed& need) const override {
      return inner_->has_room(need);
    }
    void forward(std::span<const SequenceShare> shares, ops::Matrix<float> logits,
                 std::span<std::int32_t> next) override {
      std::size_t tokens = 0;
      for (const SequenceShare& share : shares) {
        tokens += share.tokens.size();
      }
      ++counts_.steps;
      counts_.tokens += tokens;
      counts_.widest = std::max(counts_.widest, tokens);
      counts_.most_sequences = std::max(counts_.most_sequences, shares.size());
      inner_->forward(shares, logits, next);
    }
    [[nodiscard]] std::size_t page_bytes() const override { return inner_->page_bytes(); }
    [[nodiscard]] std::size_t state_bytes() const override { return inner_->state_bytes(); }
    [[nodiscard]] std::size_t capacity_bytes() const override { return inner_->capacity_bytes(); }
    [[nodiscard]] bool forks_share_pages() const override { return inner_->forks_share_pages(); }

   private:
    std::unique_ptr<engine::Runner> inner_;
    Counts& counts_;
  };

  const Backend& inner_;
  std::unique_ptr<Counts> counts_ = std::make_unique<Counts>();
};

}  // namespace winnow::engine::testing
