// Needle in a haystack (Kamradt 2023): one fact in a long text, asked for at its end.
#pragma once

#include <vector>

#include "eval/haystack.h"
#include "eval/questions.h"

namespace winnow::eval {

struct NeedleOptions {
  std::vector<int> lengths;    // tokens of prompt and answer
  std::vector<double> depths;  // 0 to 1
  int repeats = 5;             // facts for each length and depth
  int max_tokens = 40;         // of an answer
  std::uint64_t seed = 1;
};

/// Questions "<length>/<depth>/<repeat>", facts: length, depth, expected (the sentence), values.
std::vector<Question> make_needles(const Haystack& hay, const EncodePrompt& encode,
                                   const NeedleOptions& options);

/// correct: the answer contains every value; exact: it begins with the sentence itself.
Json grade_needle(const Question& question, const std::string& text);

/// Share of correct answers by depth and length; NaN for cells without answers.
std::vector<std::vector<double>> needle_map(const Journal& journal, const NeedleOptions& options);
std::string needle_id(int length, double depth, int repeat);

}  // namespace winnow::eval
