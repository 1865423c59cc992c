// Speculation: guesses at the next tokens, which the model verifies in one step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/matrix.h"

namespace winnow::engine {

class TokenConstraint;
struct EngineConfig;

/// The most tokens that are drafted for a sequence in a step.
inline constexpr int kMostDrafted = 15;

/// The number of tokens to draft for a sequence: more while guesses are right; fewer, and at ever
/// longer intervals, while they are wrong.
class DraftLength {
 public:
  virtual ~DraftLength() = default;
  /// Tokens to draft in the next step, up to `most`; 0: none.
  virtual int next(int most) = 0;
  /// Records how many tokens of a draft were accepted.
  virtual void observe(int drafted, int accepted) = 0;
};

/// Steps without a draft after wrong ones.
class DraftPause {
 public:
  /// Whether the next step has none.
  bool wait();
  /// After a wrong draft. Each pause is longer than the one before.
  void lengthen();
  void end() { steps_ = left_ = 0; }

 private:
  int steps_ = 0;
  int left_ = 0;
};

/// What a drafter keeps of one sequence between steps. The drafter must outlive it.
class DraftState {
 public:
  virtual ~DraftState() = default;
  /// For a sequence that goes on from this one; null: the drafter begins anew.
  [[nodiscard]] virtual std::unique_ptr<DraftState> fork() const { return nullptr; }
};

/// What a step has computed for a sequence.
struct DraftReading {
  std::span<const std::int32_t> tokens;  // the prompt and the answer so far
  int position = 0;                      // of the first token that the step took
  std::span<const std::int32_t> taken;   // all that it took; the last ones may be drafted
  /// [taken.size(), layers * hidden]: the model's stream after the layers_read(), side by side.
  ops::Matrix<const float> states;
  std::unique_ptr<DraftState>* state = nullptr;  // as in DraftTask
};

/// A sequence that wants a draft.
struct DraftTask {
  std::span<const std::int32_t> tokens;  // the prompt and the answer so far
  int most = 0;                          // tokens to draft
  /// The drafter's own. Null at first; the engine destroys it with the sequence.
  std::unique_ptr<DraftState>* state = nullptr;
  /// What the answer must obey, after `tokens`; may be null.
  const TokenConstraint* constraint = nullptr;
  std::span<const std::int32_t> stop_tokens = {};  // end the answer
  std::vector<std::int32_t> draft = {};            // the result; empty: no guess
};

/// What a drafter holds beside the model's cache.
struct DraftMemory {
  std::size_t bytes = 0;
  std::size_t capacity_bytes = 0;
  std::size_t weight_bytes = 0;
};

/// Guesses the next tokens. A wrong guess costs time but does not change the answer.
class Drafter {
 public:
  virtual ~Drafter() = default;
  /// The model's layers whose states it reads, after so many each; empty: none.
  [[nodiscard]] virtual std::span<const int> layers_read() const { return {}; }
  /// Reads the states of a step, of all sequences that may ask for drafts. Nobody reads others.
  virtual void read(std::span<const DraftReading> /*readings*/) {}
  /// Drafts for the sequences of a step, at most `rows` tokens in all.
  virtual void draft(std::span<DraftTask> tasks, int rows) = 0;
  /// The lengths of one sequence's drafts.
  [[nodiscard]] virtual std::unique_ptr<DraftLength> make_length() const = 0;
  /// Forgets what it has kept of sequences that have ended.
  virtual void drop_prefixes() {}
  [[nodiscard]] virtual DraftMemory memory() const { return {}; }
};

/// The drafter that `config` names: its draft model or head, else prompt lookup.
std::unique_ptr<Drafter> make_drafter(const EngineConfig& config);

/// The configuration of a draft model's or head's own runner, in an engine with `config`.
EngineConfig draft_runner_config(const EngineConfig& config);

/// Prompt lookup: finds an earlier occurrence of the last tokens, and guesses that the tokens after
/// it will follow again. Of several occurrences it takes the one with the longest match, the latest
/// of equals.
class PromptLookup : public Drafter {
 public:
  /// Sequences without a guess leave their rows to later ones.
  void draft(std::span<DraftTask> tasks, int rows) override;
  [[nodiscard]] std::unique_ptr<DraftLength> make_length() const override;
  /// Up to `most` tokens that may follow `tokens`; empty if there is no guess.
  [[nodiscard]] static std::vector<std::int32_t> guess(std::span<const std::int32_t> tokens,
                                                       int most);
};

/// Of lookups, which are right or wrong as a whole: a text goes on as it did before, or does not.
class LookupLength : public DraftLength {
 public:
  int next(int most) override;
  void observe(int drafted, int accepted) override;

 private:
  int length_ = 2;
  DraftPause pause_;
};

/// Of a model, which is right about each token with some probability: as long as all tokens are
/// likely enough to be right.
class ModelLength : public DraftLength {
 public:
  int next(int most) override;
  void observe(int drafted, int accepted) override;

 private:
  // Of recent tokens, older ones counting less: how many were right.
  double right_ = 2.0;
  double tried_ = 3.0;
  DraftPause pause_;
};

}  // namespace winnow::engine
