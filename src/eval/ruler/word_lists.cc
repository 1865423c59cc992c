#include "eval/ruler/word_lists.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numbers>
#include <set>

#include "eval/ruler/draws.h"

namespace winnow::eval {
namespace {

constexpr std::size_t kCommonWords = 10;
constexpr const char* kCommonAnswer =
    " Answer: The top 10 words that appear most often in the list are:";

struct Repeats {
  int common = 0;
  int other = 0;
};

struct CommonForm {
  std::size_t example_words = 0;
  Repeats example;
  Repeats list;
};

constexpr int kLongList = 4096;  // tokens
constexpr CommonForm kLongForm{40, {10, 3}, {30, 3}};
constexpr CommonForm kShortForm{20, {3, 1}, {6, 1}};

// "1. this 2. that"
std::string numbered(const std::vector<std::string>& words) {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    list += fmt::format("{}{}. {}", i == 0 ? "" : " ", i + 1, words[i]);
  }
  return list;
}

std::string common_words_text(const std::vector<std::string>& words, const Repeats& repeats,
                              Random random) {
  std::vector<std::string> list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const int times = i < kCommonWords ? repeats.common : repeats.other;
    list.insert(list.end(), static_cast<std::size_t>(times), words[i]);
  }
  shuffle(std::span(list), random);
  return fmt::format(
      "Below is a numbered list of words. In these words, some appear more often than others. "
      "Memorize the ones that appear most often.\n{}\nQuestion: What are the 10 most common words "
      "in the above list?",
      numbered(list));
}

std::vector<std::string> first_common(std::vector<std::string> words) {
  words.resize(kCommonWords);
  return words;
}

// Distinct words of six letters; the question is not about the most frequent one.
std::vector<std::string> coded_words(std::size_t count, Random& random) {
  constexpr int kLetters = 6;
  std::vector<std::string> words{"..."};
  std::set<std::string> taken;
  while (words.size() < count) {
    std::string word;
    for (int i = 0; i < kLetters; ++i) {
      word += static_cast<char>('a' + draw_index(26, random));
    }
    if (taken.insert(word).second) {
      words.push_back(std::move(word));
    }
  }
  return words;
}

// The word of rank k occurs `size` / (k^2 zeta(2)) times, rounded down.
std::string frequent_words_text(const std::vector<std::string>& words, int size, Random random) {
  constexpr double kZeta2 = std::numbers::pi * std::numbers::pi / 6.0;
  std::vector<std::string> text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const double rank = static_cast<double>(i) + 1.0;
    const auto times = static_cast<std::size_t>(size / (rank * rank * kZeta2));
    text.insert(text.end(), times, words[i]);
  }
  shuffle(std::span(text), random);
  return fmt::format(
      "Read the following coded text and track the frequency of each coded word. Find the three "
      "most frequently appeared coded words. {}\nQuestion: Do not provide any explanation. Please "
      "ignore the dots '....'. What are the three most frequently appeared words in the above "
      "coded text?",
      fmt::join(text, " "));
}

}  // namespace

RulerPrompt make_common_words(const Vocabulary& vocabulary, const RulerSample& sample,
                              const EncodeBegun& encode) {
  constexpr int kFewest = kCommonWords + 1;
  Random random = sample.random;
  const Random of_example(random.bits());
  const Random of_words(random.bits());
  const auto write = [&](const CommonForm& form, int size) {
    const auto shown = vocabulary.draw(form.example_words, of_example);
    return common_words_text(shown, form.example, of_example) + kCommonAnswer + " " +
           numbered(first_common(shown)) + "\n" +
           common_words_text(vocabulary.draw(static_cast<std::size_t>(size), of_words), form.list,
                             random);
  };
  const bool has_room =
      sample.length >= kLongList && encode(write(kLongForm, kFewest), kCommonAnswer).size() <=
                                        static_cast<std::size_t>(sample.prompt_tokens);
  const CommonForm& form = has_room ? kLongForm : kShortForm;
  return {fit(
              sample, kFewest, [&](int size) { return write(form, size); }, kCommonAnswer, encode),
          vocabulary.draw(kCommonWords, of_words)};
}

RulerPrompt make_frequent_words(const RulerSample& sample, const EncodeBegun& encode) {
  constexpr int kTokensPerWord = 50;  // prompt tokens per word of the vocabulary
  constexpr int kFewestWords = 5;
  // From this size on, the third word is more frequent than the fourth.
  constexpr int kFewestDrawn = 30;
  Random random = sample.random;
  const auto words = coded_words(
      static_cast<std::size_t>(std::max(kFewestWords, sample.prompt_tokens / kTokensPerWord)),
      random);
  const auto write = [&](int size) { return frequent_words_text(words, size, random); };
  return {fit(sample, kFewestDrawn, write,
              " Answer: According to the coded text above, the three most frequently appeared "
              "words are:",
              encode),
          {words.begin() + 1, words.begin() + 4}};
}

}  // namespace winnow::eval
