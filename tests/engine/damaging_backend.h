// A device whose copies in the host's memory get damaged.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "engine/runner.h"

namespace winnow::engine::testing {

/// Does what another backend does, and damages each copy once it is made.
class DamagingBackend : public Backend {
 public:
  using Damage = std::function<void(HostCopy&)>;

  DamagingBackend(std::unique_ptr<const Backend> inner, Damage damage)
      : inner_(std::move(inner)), damage_(std::move(damage)) {}
  [[nodiscard]] const model::ModelSpec& spec() const override { return inner_->spec(); }
  [[nodiscard]] kvcache::CacheShape cache_shape() const override { return inner_->cache_shape(); }
  [[nodiscard]] std::size_t weight_bytes_per_step(int sequences) const override {
    return inner_->weight_bytes_per_step(sequences);
  }
  [[nodiscard]] double read_bandwidth() const override { return inner_->read_bandwidth(); }
  [[nodiscard]] std::optional<std::size_t> memory_in_use() const override {
    return inner_->memory_in_use();
  }
  [[nodiscard]] std::unique_ptr<engine::Runner> make_runner(const EngineConfig& config,
                                                            int tokens) const override {
    return std::make_unique<Runner>(inner_->make_runner(config, tokens), damage_);
  }

 private:
  class Copies : public HostCopies {
   public:
    Copies(std::unique_ptr<HostCopies> inner, Damage damage)
        : inner_(std::move(inner)), damage_(std::move(damage)) {}
    std::unique_ptr<HostCopy> copy(const SequenceState& sequence,
                                   const FreeSome& free_some) override {
      auto made = inner_->copy(sequence, free_some);
      if (made) {
        damage_(*made);
      }
      return made;
    }
    RestoredCopy restore(const kvcache::SequenceLimits& limits, const HostCopy& copy) override {
      return inner_->restore(limits, copy);
    }
    [[nodiscard]] std::size_t used_bytes() const override { return inner_->used_bytes(); }

   private:
    std::unique_ptr<HostCopies> inner_;
    Damage damage_;
  };

  class Runner : public engine::Runner {
   public:
    Runner(std::unique_ptr<engine::Runner> inner, Damage damage)
        : inner_(std::move(inner)), damage_(std::move(damage)) {}
    std::unique_ptr<SequenceState> open(const kvcache::SequenceLimits& limits) override {
      return inner_->open(limits);
    }
    std::unique_ptr<SequenceState> restore(const kvcache::SequenceLimits& limits,
                                           const kvcache::SavedSequence& saved) override {
      return inner_->restore(limits, saved);
    }
    std::unique_ptr<HostCopies> make_host_copies(std::size_t max_bytes) override {
      return std::make_unique<Copies>(inner_->make_host_copies(max_bytes), damage_);
    }
    [[nodiscard]] kvcache::PageNeed need(const SequenceState& sequence, int tokens) const override {
      return inner_->need(sequence, tokens);
    }
    [[nodiscard]] bool has_room(const kvcache::PageNeed& need) const override {
      return inner_->has_room(need);
    }
    void forward(std::span<const SequenceShare> shares, ops::Matrix<float> logits,
                 std::span<std::int32_t> next) override {
      inner_->forward(shares, logits, next);
    }
    [[nodiscard]] std::size_t page_bytes() const override { return inner_->page_bytes(); }
    [[nodiscard]] std::size_t state_bytes() const override { return inner_->state_bytes(); }
    [[nodiscard]] std::size_t capacity_bytes() const override { return inner_->capacity_bytes(); }
    [[nodiscard]] bool forks_share_pages() const override { return inner_->forks_share_pages(); }

   private:
    std::unique_ptr<engine::Runner> inner_;
    Damage damage_;
  };

  std::unique_ptr<const Backend> inner_;
  Damage damage_;
};

}  // namespace winnow::engine::testing
