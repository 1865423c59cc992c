// A backend that counts the tokens that its sequences take.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "engine/forwarding_runner.h"

namespace winnow::engine::testing {

/// Does what another backend does, and counts.
class ReadingBackend : public ForwardingBackend {
 public:
  struct Counts {
    int steps = 0;
    std::size_t tokens = 0;
    std::size_t widest = 0;  // tokens in one step
    std::size_t most_sequences = 0;
  };

  explicit ReadingBackend(const Backend& inner) : ForwardingBackend(inner) {}
  [[nodiscard]] Counts take() const { return std::exchange(*counts_, {}); }

  [[nodiscard]] std::unique_ptr<engine::Runner> make_runner(const EngineConfig& config,
                                                            int tokens) const override {
    return std::make_unique<Runner>(inner().make_runner(config, tokens), *counts_);
  }

 private:
  class Runner : public ForwardingRunner {
   public:
    Runner(std::unique_ptr<engine::Runner> inner, Counts& counts)
        : ForwardingRunner(std::move(inner)), counts_(counts) {}
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
      ForwardingRunner::forward(shares, logits, next);
    }

   private:
    Counts& counts_;
  };

  std::unique_ptr<Counts> counts_ = std::make_unique<Counts>();
};

}  // namespace winnow::engine::testing
