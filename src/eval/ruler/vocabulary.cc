#include "eval/ruler/vocabulary.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "eval/ruler/draws.h"

namespace winnow::eval {
namespace {

// A word of three or four syllables.
std::string invented(Random& random) {
  constexpr std::string_view kConsonants = "bdfghklmnprstvz";
  constexpr std::string_view kVowels = "aeiou";
  const std::size_t syllables = 3 + draw_index(2, random);
  std::string word;
  for (std::size_t i = 0; i < syllables; ++i) {
    word += kConsonants[draw_index(kConsonants.size(), random)];
    word += kVowels[draw_index(kVowels.size(), random)];
  }
  return word;
}

// Adds distinct words to `words` until there are `count`.
void invent(std::vector<std::string>& words, std::size_t count, Random random) {
  std::set<std::string> taken(words.begin(), words.end());
  while (words.size() < count) {
    std::string word = invented(random);
    if (taken.insert(word).second) {
      words.push_back(std::move(word));
    }
  }
}

}  // namespace

Vocabulary::Vocabulary(std::string_view text) {
  constexpr std::size_t kShortest = 4;
  constexpr std::size_t kLongest = 12;
  constexpr std::size_t kFewest = 500;  // some 250,000 pairs
  std::set<std::string> found;
  std::string word;
  bool plain = true;
  const auto end = [&] {
    if (plain && word.size() >= kShortest && word.size() <= kLongest) {
      found.insert(word);
    }
    word.clear();
    plain = true;
  };
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalpha(byte) != 0) {
      word += static_cast<char>(std::tolower(byte));
    } else if (byte >= 0x80 || std::isdigit(byte) != 0 || c == '_') {
      plain = false;  // words with other characters are skipped
    } else {
      end();
    }
  }
  end();
  words_.assign(found.begin(), found.end());
  invent(words_, kFewest, Random(0));
}

std::string Vocabulary::pair(Random& random) const {
  const std::string& first = words_[draw_index(words_.size(), random)];
  return first + "-" + words_[draw_index(words_.size(), random)];
}

std::vector<std::string> Vocabulary::draw(std::size_t count, Random random) const {
  std::vector<std::string> words = words_;
  shuffle(std::span(words), random);
  invent(words, count, random);
  words.resize(count);
  return words;
}

}  // namespace winnow::eval
