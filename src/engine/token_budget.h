// Divides the tokens of a step among prompts.
#pragma once

#include <span>
#include <vector>

namespace winnow::engine {

/// Tokens that prompts may have in a step of `step_tokens` in which `decodes` sequences take one
/// each. They always have a quarter of the step.
int prompt_budget(int step_tokens, int decodes);

/// Divides `budget` tokens among prompts with `pending` tokens left, by max-min fairness: no prompt
/// gets more than another that needs more. Never more than pending; in all min(budget, sum of
/// pending).
std::vector<int> deal_tokens(std::span<const int> pending, int budget);

}  // namespace winnow::engine
