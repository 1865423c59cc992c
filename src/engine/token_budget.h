// Divides the tokens of a step among prompts.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

namespace winnow::engine {

/// The number of prompt tokens in a step of `step_tokens` in which `decodes` sequences take one
/// token each. Prompts always get at least a quarter of the step.
int prompt_budget(int step_tokens, int decodes);

/// Divides `budget` tokens among prompts with `pending` tokens left, by max-min fairness: no prompt
/// gets more than another that needs more. No prompt gets more than its pending tokens; the total
/// is min(budget, sum of pending).
std::vector<int> deal_tokens(std::span<const int> pending, int budget);

/// The places of prompts that are read at a time in steps of `budget` prompt tokens: with more, all
/// would only end later. A prompt takes an eighth of the step, or less if it has less to read. Long
/// ones leave the last eighth to short ones, which would otherwise wait for all of a long prompt.
class PromptPlaces {
 public:
  explicit PromptPlaces(int budget);
  /// Whether there is one for a prompt with `pending` tokens left. The first always gets one.
  [[nodiscard]] bool has_one_for(int pending) const;
  void take(int pending) { taken_ += std::min(pending, share_); }

 private:
  int budget_;
  int share_;
  int taken_ = 0;
};

}  // namespace winnow::engine
