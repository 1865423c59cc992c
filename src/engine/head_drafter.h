// Drafts of a head that reads the model's hidden states.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/draft_job.h"
#include "engine/drafter.h"
#include "engine/runner.h"

namespace winnow::engine {

/// Drafts by a head: EAGLE-3's or an MTP layer (model::DraftHeadSpec).
///
/// The head takes a row for each token that the model has computed: the model's states there, and
/// the token after it. So its cache follows each sequence from the first token that the model
/// computes for it; tokens of a known prefix, whose states nobody has, it does not see. Few rows
/// wait for the next draft, whose first step takes them; many, as those of a prompt, are taken at
/// once. Drafted tokens go into a fork with the head's own states, and the fork is dropped: what
/// becomes part of the answer is taken again with the model's states. When the cache is full,
/// sequences that have long not asked for drafts lose their caches first. They begin again with
/// what is computed after they ask; a sequence for which there is no room even then gets no more
/// drafts.
class HeadDrafter : public Drafter {
 public:
  /// `head` must outlive this. Of `config` it takes draft_cache and what else a runner needs.
  HeadDrafter(const Backend& head, const EngineConfig& config);
  ~HeadDrafter() override;
  HeadDrafter(const HeadDrafter&) = delete;
  HeadDrafter& operator=(const HeadDrafter&) = delete;

  [[nodiscard]] std::span<const int> layers_read() const override;
  void read(std::span<const DraftReading> readings) override;
  /// Divides `rows` evenly.
  void draft(std::span<DraftTask> tasks, int rows) override;
  [[nodiscard]] std::unique_ptr<DraftLength> make_length() const override;
  [[nodiscard]] DraftMemory memory() const override;

 private:
  struct State;
  struct Job;
  struct Intake;
  struct Prompt;

  State& state_of(std::unique_ptr<DraftState>& state);
  void read_prompts(std::span<const Prompt> prompts);
  void take(Intake& intake);
  std::vector<Job> begin(std::span<DraftTask> tasks, int rows);
  void take_waiting(std::span<Job> jobs);
  void extend(std::span<Job> jobs);
  bool fork(Job& job);
  bool drop_idle();

  const Backend& head_;
  std::unique_ptr<Runner> runner_;
  std::vector<State*> states_;  // of all sequences that it follows
  std::uint64_t calls_ = 0;
  std::vector<std::int32_t> next_;  // the tokens that the runner has chosen
};

}  // namespace winnow::engine
