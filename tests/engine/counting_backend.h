// A device without a model: sequences only count their tokens. It can be made to fail.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/runner.h"
#include "model/spec_of.h"

namespace winnow::engine::testing {

/// What fails, from the first step on.
enum class Fault : std::uint8_t {
  none,
  steps,       // all steps
  late_steps,  // steps of sequences of ten tokens and more
  reads,       // queries of the cache
  device,      // steps and queries
  adapters,    // preparing an adapter, at any time
};

/// A device on which the next token of a sequence is its length.
class CountingBackend : public Backend {
 public:
  explicit CountingBackend(Fault fault, std::chrono::milliseconds step = {})
      : fault_(fault),
        step_(step),
        spec_(winnow::testing::spec_of(
            "llama", {.layers = 1, .kv_heads = 1, .vocab = 100, .max_positions = 1000})) {}
  [[nodiscard]] const model::ModelSpec& spec() const override { return spec_; }
  [[nodiscard]] kvcache::CacheShape cache_shape() const override {
    return {.layers = 1, .kv_heads = 1, .head_dim = 8, .group = 1};
  }
  [[nodiscard]] std::size_t weight_bytes_per_step(int) const override { return 0; }
  [[nodiscard]] double read_bandwidth() const override { return 1.0; }
  [[nodiscard]] std::optional<std::size_t> memory_in_use() const override { return std::nullopt; }
  [[nodiscard]] std::unique_ptr<engine::Runner> make_runner(const EngineConfig& /*config*/,
                                                            int /*tokens*/) const override {
    return std::make_unique<Runner>(fault_, step_);
  }

 private:
  class Runner : public engine::Runner {
   public:
    Runner(Fault fault, std::chrono::milliseconds step) : fault_(fault), step_(step) {}
    std::unique_ptr<SequenceState> open(const kvcache::SequenceLimits&) override {
      return std::make_unique<Sequence>(*this);
    }
    std::unique_ptr<SequenceState> restore(const kvcache::SequenceLimits&,
                                           const kvcache::SavedSequence&) override {
      return nullptr;
    }
    void prepare(const model::Lora&) override {
      require(fault_ != Fault::adapters, "an adapter of too high a rank");
    }
    [[nodiscard]] kvcache::PageNeed need(const SequenceState&, int) const override { return {}; }
    [[nodiscard]] bool has_room(const kvcache::PageNeed&) const override { return true; }
    void forward(std::span<const SequenceShare> shares, ops::Matrix<float>,
                 std::span<std::int32_t> next) override {
      std::this_thread::sleep_for(step_);
      has_begun_ = true;
      require(fault_ != Fault::steps && fault_ != Fault::device, "a kernel has failed");
      std::size_t row = 0;
      for (const SequenceShare& share : shares) {
        auto& sequence = static_cast<Sequence&>(*share.sequence);
        require(fault_ != Fault::late_steps || sequence.length() < 10, "a kernel has failed late");
        sequence.grow(static_cast<int>(share.tokens.size()));
        row += share.logit_rows;
        if (share.logit_rows > 0) {
          next[row - 1] = sequence.length();
        }
      }
    }
    [[nodiscard]] std::size_t page_bytes() const override {
      check_reads();
      return 0;
    }
    [[nodiscard]] std::size_t capacity_bytes() const override { return 1U << 20; }
    [[nodiscard]] bool forks_share_pages() const override { return false; }

    void check_reads() const {
      const bool fail = has_begun_ && (fault_ == Fault::reads || fault_ == Fault::device);
      require(!fail, "the device does not answer");
    }

   private:
    Fault fault_;
    std::chrono::milliseconds step_;
    bool has_begun_ = false;
  };

  class Sequence : public SequenceState {
   public:
    explicit Sequence(const Runner& runner) : runner_(runner) {}
    [[nodiscard]] int length() const override { return length_; }
    [[nodiscard]] std::unique_ptr<SequenceState> fork() const override { return nullptr; }
    [[nodiscard]] CacheUsage usage() const override {
      runner_.check_reads();
      CacheUsage usage;
      usage.tokens = length_;
      return usage;
    }
    [[nodiscard]] kvcache::SavedSequence save() const override { return {}; }
    void grow(int tokens) { length_ += tokens; }

   private:
    const Runner& runner_;
    int length_ = 0;
  };

  Fault fault_;
  std::chrono::milliseconds step_;
  model::ModelSpec spec_;
};

}  // namespace winnow::engine::testing
