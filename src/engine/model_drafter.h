// Drafts by a small model of the same vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/drafter.h"
#include "engine/prefix_cache.h"
#include "engine/runner.h"

namespace winnow::engine {

/// Drafts the tokens that the small model finds most likely, for all sequences of a step together.
///
/// Its own cache follows each sequence. It reads what it has not seen (the prompt, tokens that it
/// did not draft) in chunks of config.step_tokens; a sequence that it has not read to the end gets
/// no draft yet. Drafted tokens go into a fork, which takes the cache's place once all of them have
/// become part of the answer, and is dropped otherwise. When its cache is full, what ended
/// sequences have left goes first, then the caches of sequences that have long not asked for
/// drafts. A sequence for which there is no room even then gets no more drafts.
class ModelDrafter : public Drafter {
 public:
  /// `model` must outlive this. Of `config` it takes draft_cache and what else a runner needs.
  ModelDrafter(const Backend& model, const EngineConfig& config);
  ~ModelDrafter() override;
  ModelDrafter(const ModelDrafter&) = delete;
  ModelDrafter& operator=(const ModelDrafter&) = delete;

  /// Divides `rows` evenly.
  void draft(std::span<DraftTask> tasks, int rows) override;
  [[nodiscard]] std::unique_ptr<DraftLength> make_length() const override;
  void drop_prefixes() override;
  [[nodiscard]] DraftMemory memory() const override;

 private:
  struct State;
  struct Job;

  std::vector<Job> begin(std::span<DraftTask> tasks, int rows);
  State& state_of(DraftTask& task);
  void follow(State& state, std::span<const std::int32_t> tokens);
  void open(State& state, std::span<const std::int32_t> tokens);
  void catch_up(std::span<Job> jobs);
  void note_read(const Job& job, int count, std::int32_t next);
  void extend(std::span<Job> jobs);
  bool fork(State& state);
  std::vector<Job*> fit(std::vector<Job*>& jobs, std::vector<SequenceShare>& shares);
  bool drop_idle();
  void keep(std::span<const std::int32_t> tokens, std::unique_ptr<SequenceState> cache);

  const Backend& model_;
  int step_tokens_;
  bool keeps_prefixes_;
  std::size_t weight_bytes_;
  std::unique_ptr<Runner> runner_;
  PrefixCache prefixes_;        // of ended sequences, and where sequences part
  std::vector<State*> states_;  // of all sequences that it has drafted for
  std::uint64_t calls_ = 0;
  std::vector<std::int32_t> next_;  // the tokens that the runner has chosen
};

}  // namespace winnow::engine
