// Chains of variables: the first has a value, every other one is a copy of its predecessor.
#pragma once

#include <string>
#include <vector>

#include "base/random.h"

namespace winnow::eval {

struct Chain {
  std::vector<std::string> names;
  std::string value;
};

struct ChainForm {
  int chains = 1;
  int hops = 4;             // copies after the first assignment
  std::size_t letters = 5;  // of a name
  int lowest = 10000;       // smallest value; all are below ten times that
};

/// All names and values are distinct.
std::vector<Chain> draw_chains(const ChainForm& form, Random& random);

/// RULER's wording: the beginning of its prompt, "VAR X = 12345" or "VAR Y = VAR X", the question
/// for all variables with the chain's value, and the beginning of the answer.
extern const char* const kTrackingTask;
std::string var_assignment(const Chain& chain, std::size_t index);
std::string tracking_question(const Chain& chain);
std::string tracking_answer(const Chain& chain);

}  // namespace winnow::eval
