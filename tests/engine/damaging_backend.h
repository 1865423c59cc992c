// A device whose copies in the host's memory get damaged.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "engine/forwarding_runner.h"

namespace winnow::engine::testing {

/// Does what another backend does, and damages each copy once it is made.
class DamagingBackend : public ForwardingBackend {
 public:
  using Damage = std::function<void(HostCopy&)>;

  DamagingBackend(std::unique_ptr<const Backend> inner, Damage damage)
      : ForwardingBackend(*inner), owned_(std::move(inner)), damage_(std::move(damage)) {}
  [[nodiscard]] std::unique_ptr<engine::Runner> make_runner(const EngineConfig& config,
                                                            int tokens) const override {
    return std::make_unique<Runner>(inner().make_runner(config, tokens), damage_);
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

  class Runner : public ForwardingRunner {
   public:
    Runner(std::unique_ptr<engine::Runner> inner, Damage damage)
        : ForwardingRunner(std::move(inner)), damage_(std::move(damage)) {}
    std::unique_ptr<HostCopies> make_host_copies(std::size_t max_bytes) override {
      return std::make_unique<Copies>(ForwardingRunner::make_host_copies(max_bytes), damage_);
    }

   private:
    Damage damage_;
  };

  std::unique_ptr<const Backend> owned_;
  Damage damage_;
};

}  // namespace winnow::engine::testing
