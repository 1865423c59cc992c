// Divides the tokens of a step among prompts.
#pragma once

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

}  // namespace winnow::engine
