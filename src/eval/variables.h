// Variable tracking: chains of assignments scattered over a text; the question is about the end of
// one of them.
#pragma once

#include <string>
#include <vector>

#include "eval/haystack.h"
#include "eval/questions.h"

namespace winnow::eval {

struct VariablesOptions {
  std::vector<int> lengths;  // tokens of prompt and answer
  int chains = 1;            // one that is asked for; the others are distractors
  int hops = 4;              // copies after the first assignment of a chain
  int repeats = 20;          // texts per length
  int max_tokens = 120;      // of an answer
  /// "ruler": the prompt of RULER (Hsieh et al. 2024), which asks for all variables with a value;
  /// "plain": sentences, and a question for the value of a chain's last variable.
  std::string style = "ruler";
  std::uint64_t seed = 1;
};

/// Questions "<length>/<repeat>", facts: length, style, values: what the answer must contain
/// (ruler: all names, plain: the value).
std::vector<Question> make_variables(const Haystack& hay, const EncodePrompt& encode,
                                     const VariablesOptions& options);

/// ruler: correct if all names are in the answer, found: the share of them (RULER's score). plain:
/// correct if the number after "answer is", or else the last one, is the value.
Json grade_variables(const Question& question, const std::string& text);

}  // namespace winnow::eval
