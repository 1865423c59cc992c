// What tests derive from to change one thing about a runner.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "engine/runner.h"

namespace winnow::engine::testing {

/// Does what another runner does.
class ForwardingRunner : public Runner {
 public:
  explicit ForwardingRunner(std::unique_ptr<Runner> inner) : inner_(std::move(inner)) {}

  std::unique_ptr<SequenceState> open(const kvcache::SequenceLimits& limits) override {
    return inner_->open(limits);
  }
  std::unique_ptr<SequenceState> restore(const kvcache::SequenceLimits& limits,
                                         const kvcache::SavedSequence& saved) override {
    return inner_->restore(limits, saved);
  }
  std::unique_ptr<HostCopies> make_host_copies(std::size_t max_bytes) override {
    return inner_->make_host_copies(max_bytes);
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
  std::unique_ptr<Runner> inner_;
};

/// The same for a backend, but for its runners.
class ForwardingBackend : public Backend {
 public:
  /// `inner` must outlive this.
  explicit ForwardingBackend(const Backend& inner) : inner_(inner) {}

  [[nodiscard]] const model::ModelSpec& spec() const override { return inner_.spec(); }
  [[nodiscard]] kvcache::CacheShape cache_shape() const override { return inner_.cache_shape(); }
  [[nodiscard]] std::size_t weight_bytes_per_step(int sequences) const override {
    return inner_.weight_bytes_per_step(sequences);
  }
  [[nodiscard]] double read_bandwidth() const override { return inner_.read_bandwidth(); }
  [[nodiscard]] std::optional<std::size_t> memory_in_use() const override {
    return inner_.memory_in_use();
  }
  [[nodiscard]] bool hands_out_stream() const override { return inner_.hands_out_stream(); }

 protected:
  [[nodiscard]] const Backend& inner() const { return inner_; }

 private:
  const Backend& inner_;
};

}  // namespace winnow::engine::testing
