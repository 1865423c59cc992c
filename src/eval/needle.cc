#include "eval/needle.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "eval/facts.h"

namespace winnow::eval {

std::string needle_id(int length, double depth, int repeat) {
  return fmt::format("{}/{}/{}", length, depth, repeat);
}

std::vector<Question> make_needles(const Haystack& hay, const EncodePrompt& encode,
                                   const NeedleOptions& options) {
  require(!options.lengths.empty(), "--lengths: at least one is needed");
  require(!options.depths.empty(), "--depths: at least one is needed");
  require(options.repeats >= 1, "--repeats {}: at least 1 is needed", options.repeats);
  require(options.max_tokens >= 1, "--max-tokens {}: at least 1 is needed", options.max_tokens);
  std::vector<Question> questions;
  for (const int length : options.lengths) {
    for (const double depth : options.depths) {
      require(depth >= 0.0 && depth <= 1.0, "--depths: {} is not between 0 and 100", 100.0 * depth);
      for (int repeat = 0; repeat < options.repeats; ++repeat) {
        // The same facts in the same hay for every setting of the other options.
        Random random(options.seed, mix64(static_cast<std::uint64_t>(length) << 32 |
                                          static_cast<std::uint64_t>(std::lround(depth * 1e6))) +
                                        static_cast<std::uint64_t>(repeat));
        const Fact fact = make_fact(repeat, random);
        const Hidden hidden{fact.sentence, depth};
        Question question;
        question.id = needle_id(length, depth, repeat);
        question.prompt =
            hay.prompt(length - options.max_tokens, std::span(&hidden, 1),
                       "\n\nQuestion: " + fact.question + "\nAnswer:", encode, random);
        question.max_tokens = options.max_tokens;
        question.stop = {"\n\n", "Question:"};
        question.facts = {{"length", length},
                          {"depth", depth},
                          {"expected", fact.sentence},
                          {"values", fact.values}};
        questions.push_back(std::move(question));
      }
    }
  }
  return questions;
}

Json grade_needle(const Question& question, const std::string& text) {
  bool correct = true;
  for (const Json& value : question.facts.at("values")) {
    correct = correct && holds_word(text, value.get<std::string>());
  }
  const std::size_t begin = std::min(text.find_first_not_of(" \n"), text.size());
  const bool exact =
      text.substr(begin).starts_with(question.facts.at("expected").get<std::string>());
  return {{"correct", correct}, {"exact", exact}};
}

std::vector<std::vector<double>> needle_map(const Journal& journal, const NeedleOptions& options) {
  std::vector<std::vector<double>> map;
  for (const double depth : options.depths) {
    auto& row = map.emplace_back();
    for (const int length : options.lengths) {
      Mean correct;
      for (int repeat = 0; repeat < options.repeats; ++repeat) {
        const Json* record = journal.find(needle_id(length, depth, repeat));
        if (record != nullptr && record->contains("answers")) {
          correct.add(record->at("answers").at(0).at("correct").get<bool>() ? 1.0 : 0.0);
        }
      }
      row.push_back(correct.count() > 0 ? correct.mean()
                                        : std::numeric_limits<double>::quiet_NaN());
    }
  }
  return map;
}

}  // namespace winnow::eval
