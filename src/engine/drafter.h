// Speculation: guesses at the next tokens, which the model verifies in one step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace winnow::engine {

/// Most tokens that are drafted for a sequence in a step.
inline constexpr int kMostDrafted = 15;

/// Guesses what comes next. A wrong guess costs time and changes no answer.
class Drafter {
 public:
  virtual ~Drafter() = default;
  /// Up to `most` tokens that may follow `tokens`; none where there is no guess.
  [[nodiscard]] virtual std::vector<std::int32_t> draft(std::span<const std::int32_t> tokens,
                                                        int most) const = 0;
};

/// Prompt lookup: looks for the last tokens in the text before them, and guesses that what followed
/// there follows again. Of several places the one with the longest match counts, of equals the
/// latest.
class PromptLookup : public Drafter {
 public:
  [[nodiscard]] std::vector<std::int32_t> draft(std::span<const std::int32_t> tokens,
                                                int most) const override;
};

/// How many tokens of a sequence are drafted: more while guesses are right, fewer and at ever
/// longer intervals while they are wrong.
class DraftLength {
 public:
  /// Tokens to draft in the next step, up to `most`; 0: none.
  int next(int most);
  /// What became of a draft.
  void observe(int drafted, int accepted);

 private:
  int length_ = 2;
  int pause_ = 0;  // steps without a draft after the last wrong one
  int wait_ = 0;   // of these, still to come
};

}  // namespace winnow::engine
