// Speculation: guesses at the next tokens, which the model verifies in one step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace winnow::engine {

/// The most tokens that are drafted for a sequence in a step.
inline constexpr int kMostDrafted = 15;

/// Guesses the next tokens. A wrong guess costs time but does not change the answer.
class Drafter {
 public:
  virtual ~Drafter() = default;
  /// Up to `most` tokens that may follow `tokens`; empty if there is no guess.
  [[nodiscard]] virtual std::vector<std::int32_t> draft(std::span<const std::int32_t> tokens,
                                                        int most) const = 0;
};

/// Prompt lookup: finds an earlier occurrence of the last tokens, and guesses that the tokens after
/// it will follow again. Of several occurrences it takes the one with the longest match, the latest
/// of equals.
class PromptLookup : public Drafter {
 public:
  [[nodiscard]] std::vector<std::int32_t> draft(std::span<const std::int32_t> tokens,
                                                int most) const override;
};

/// The number of tokens to draft for a sequence: more while guesses are right; fewer, and at ever
/// longer intervals, while they are wrong.
class DraftLength {
 public:
  /// Tokens to draft in the next step, up to `most`; 0: none.
  int next(int most);
  /// Records how many tokens of a draft were accepted.
  void observe(int drafted, int accepted);

 private:
  int length_ = 2;
  int pause_ = 0;  // steps without a draft after the last wrong one
  int wait_ = 0;   // how many of these are still to come
};

}  // namespace winnow::engine
