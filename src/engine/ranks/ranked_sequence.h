// A sequence whose cache is divided among ranks: rank 0's side.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/ranks/group.h"

namespace winnow::engine {

struct RunnerSettings {
  int id = 0;
  kvcache::CacheConfig cache;
};

/// Combines the needs of all ranks.
kvcache::PageNeed join_needs(std::vector<kvcache::PageNeed> needs);

/// Joins the ranks' values per KV head, layer by layer, in the order of the whole model's heads. Of
/// ranks that hold the same one the first counts.
void join_heads(const Group& group, std::span<const std::span<const std::int32_t>> parts,
                std::span<std::int32_t> whole);

/// Joins the ranks' parts of a saved sequence, read from their answers.
kvcache::SavedSequence join_saved(const Group& group, const RunnerSettings& runner,
                                  const kvcache::SequenceLimits& limits,
                                  std::span<RankAnswer> answers);

/// The Members hold its parts under the same id.
class RankedSequence : public SequenceState {
 public:
  RankedSequence(Group& group, const RunnerSettings& runner, int id,
                 const kvcache::SequenceLimits& limits, int length)
      : group_(group), runner_(runner), id_(id), limits_(limits), length_(length) {}
  ~RankedSequence() override;
  RankedSequence(const RankedSequence&) = delete;
  RankedSequence& operator=(const RankedSequence&) = delete;

  [[nodiscard]] int length() const override { return length_; }
  [[nodiscard]] std::unique_ptr<SequenceState> fork() const override;
  [[nodiscard]] CacheUsage usage() const override;
  [[nodiscard]] std::int64_t live_entries() const override {
    return live_entries_ ? *live_entries_ : usage().live_entries;
  }
  [[nodiscard]] kvcache::SavedSequence save() const override;

  /// Records the ranks' answer after the sequence took tokens.
  void took(int tokens, std::int64_t live_entries, kvcache::PageNeed next) {
    length_ += tokens;
    live_entries_ = live_entries;
    next_need_ = std::move(next);
  }
  [[nodiscard]] kvcache::PageNeed need(int tokens) const;
  [[nodiscard]] int id() const { return id_; }
  [[nodiscard]] const kvcache::SequenceLimits& limits() const { return limits_; }

 private:
  [[nodiscard]] std::function<void(MessageWriter&)> names() const {
    return [this](MessageWriter& message) { message.put(id_); };
  }

  Group& group_;
  RunnerSettings runner_;
  int id_;
  kvcache::SequenceLimits limits_;
  int length_;
  std::optional<std::int64_t> live_entries_;
  mutable std::optional<kvcache::PageNeed> next_need_;  // of one token; nullopt: ask the ranks
};

}  // namespace winnow::engine
