#include "eval/haystack.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "eval/does_not_fit.h"

namespace winnow::eval {

const char* const kNoise =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

namespace {

// The first end of a sentence from `at` on, within 300 bytes; else the first end of a word.
std::size_t sentence_end(std::string_view text, std::size_t at) {
  constexpr std::size_t kFar = 300;
  if (at == 0) {
    return 0;
  }
  for (std::size_t i = at; i < std::min(text.size(), at + kFar); ++i) {
    const bool ends = text[i - 1] == '.' || text[i - 1] == '!' || text[i - 1] == '?';
    if (ends && text[i] == ' ') {
      return i;
    }
  }
  return std::min(text.find(' ', at), text.size());
}

}  // namespace

std::string hide(const std::string& hay, std::span<const Hidden> hidden) {
  std::vector<std::pair<std::size_t, const std::string*>> places;
  for (const Hidden& one : hidden) {
    const auto at = static_cast<std::size_t>(one.depth * static_cast<double>(hay.size()));
    places.emplace_back(sentence_end(hay, std::min(at, hay.size())), &one.sentence);
  }
  std::ranges::stable_sort(places, {}, &std::pair<std::size_t, const std::string*>::first);
  std::string text;
  std::size_t done = 0;
  for (const auto& [at, sentence] : places) {
    text += hay.substr(done, at - done);
    text += (text.empty() ? "" : " ") + *sentence + (at == 0 ? " " : "");
    done = at;
  }
  return text + hay.substr(done);
}

Haystack::Haystack(const Tokenizer& tokenizer, std::string_view text) : tokenizer_(tokenizer) {
  std::istringstream words{std::string(text)};
  std::string joined;
  for (std::string word; words >> word;) {
    joined += (joined.empty() ? "" : " ") + word;
  }
  require(!joined.empty(), "the text to hide in is empty");
  tokens_ = tokenizer.encode(joined + " ", {.add_special = false, .parse_special = false});
}

std::string Haystack::cut(std::size_t first, std::size_t tokens) const {
  std::vector<std::int32_t> piece(tokens);
  for (std::size_t i = 0; i < tokens; ++i) {
    piece[i] = tokens_[(first + i) % tokens_.size()];
  }
  std::string text = tokenizer_.decode(piece, /*skip_special=*/true);
  // The first and the last word may be incomplete.
  const std::size_t begin = text.find(' ');
  const std::size_t end = text.rfind(' ');
  return begin < end && end != std::string::npos ? text.substr(begin + 1, end - begin - 1) : "";
}

std::size_t Haystack::random_place(Random& random) const {
  return static_cast<std::size_t>(random.uniform() * static_cast<double>(tokens_.size()));
}

std::string Haystack::excerpt(std::size_t tokens, Random& random) const {
  return cut(random_place(random), tokens);
}

std::vector<std::int32_t> Haystack::prompt(int length, std::span<const Hidden> hidden,
                                           const std::string& question, const EncodePrompt& encode,
                                           Random& random) const {
  constexpr int kTries = 12;
  constexpr std::int64_t kSlack = 4;
  const std::size_t first = random_place(random);
  const auto asked = static_cast<std::int64_t>(encode(hide("", hidden) + question).size());
  constexpr const char* kNoRoom =
      "--lengths: without the tokens of the answer, {} prompt tokens have no room for hay: what "
      "is hidden and asked takes {}";
  std::int64_t size = length - asked;
  require_fit(size > 0, kNoRoom, std::max(0, length), asked);
  std::vector<std::int32_t> best;
  for (int i = 0; i < kTries && size > 0; ++i) {
    auto tokens = encode(hide(cut(first, static_cast<std::size_t>(size)), hidden) + question);
    const std::int64_t room = length - static_cast<std::int64_t>(tokens.size());
    if (room >= 0 && tokens.size() > best.size()) {
      best = std::move(tokens);
    }
    if (room >= 0 && room <= kSlack) {
      break;
    }
    size += room >= 0 ? room - kSlack / 2 : room - 1;
  }
  require_fit(!best.empty(), kNoRoom, length, asked);
  return best;
}

}  // namespace winnow::eval
