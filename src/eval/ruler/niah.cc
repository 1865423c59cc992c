#include "eval/ruler/niah.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "eval/facts.h"
#include "eval/ruler/draws.h"

namespace winnow::eval {
namespace {

constexpr std::array kNiahPlurals{"words", "numbers", "uuids"};

const char* plural(NiahWord kind) {
  return kNiahPlurals.at(static_cast<std::size_t>(kind));
}

// A random UUID (RFC 9562, version 4).
std::string draw_uuid(Random& random) {
  const std::uint64_t high = (random.bits() & ~0xF000ULL) | 0x4000ULL;
  const std::uint64_t low = (random.bits() & ~(0b11ULL << 62)) | 0b10ULL << 62;
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high >> 32, high >> 16 & 0xFFFF,
                     high & 0xFFFF, low >> 48, low & 0xFFFFFFFFFFFFULL);
}

// Draws distinct keys and values: a repeated key would have two answers.
class NiahWords {
 public:
  explicit NiahWords(const Vocabulary& words) : words_(words) {}

  std::string draw(NiahWord kind, Random& random) {
    while (true) {
      std::string word = any(kind, random);
      if (taken_.insert(word).second) {
        return word;
      }
    }
  }

 private:
  [[nodiscard]] std::string any(NiahWord kind, Random& random) const {
    switch (kind) {
      case NiahWord::words:
        return words_.pair(random);
      case NiahWord::numbers:
        return std::to_string(eval::draw(random, 1'000'000, 10'000'000));
      case NiahWord::uuids:
        break;
    }
    return draw_uuid(random);
  }

  const Vocabulary& words_;
  std::set<std::string> taken_;
};

std::string needle_of(const NiahForm& form, const std::string& key, const std::string& value) {
  return fmt::format("One of the special magic {} for {} is: {}.", plural(form.value), key, value);
}

// The text before and after the hay, and the beginning of the answer.
struct NiahWording {
  std::string head;
  std::string question;
  std::string answer;
};

NiahWording wording(const NiahForm& form, const std::string& query) {
  const bool one = form.queries * form.values == 1;
  std::string what = plural(form.value);
  if (one) {
    what.pop_back();  // removes the plural's s
  }
  return {fmt::format("{} special magic {} {} hidden within the following text. Make sure to "
                      "memorize it. I will quiz you about the {} afterwards.\n",
                      one ? "A" : "Some", what, one ? "is" : "are", what),
          fmt::format("\nWhat {} the special magic {} for {} mentioned in the provided text?",
                      one ? "is" : "are all", what, query),
          fmt::format(" The special magic {} for {} mentioned in the provided text {}", what, query,
                      one ? "is" : "are")};
}

// "a", "a, and b", "a, b, and c"
std::string listed_keys(const std::vector<std::string>& keys) {
  if (keys.size() == 1) {
    return keys.front();
  }
  return fmt::format("{}, and {}", fmt::join(keys.begin(), keys.end() - 1, ", "), keys.back());
}

// Hides them at distinct depths out of 40 from 0 to 100 %.
std::vector<Hidden> at_depths(const std::vector<std::string>& needles, Random& random) {
  constexpr std::size_t kDepths = 40;
  const auto depths = choose(needles.size(), kDepths, random);
  std::vector<Hidden> hidden;
  for (std::size_t i = 0; i < needles.size(); ++i) {
    const double depth = std::round(100.0 * static_cast<double>(depths[i]) / (kDepths - 1));
    hidden.push_back({needles[i], depth / 100.0});
  }
  return hidden;
}

struct NiahFacts {
  std::vector<std::string> needles;
  std::vector<std::string> asked;  // keys
  std::vector<std::string> answers;
};

NiahFacts draw_facts(const NiahForm& form, NiahWords& words, Random& random) {
  NiahFacts facts;
  std::vector<std::pair<std::string, std::vector<std::string>>> entries;
  for (int k = 0; k < form.keys; ++k) {
    auto& [key, values] =
        entries.emplace_back(words.draw(form.key, random), std::vector<std::string>());
    for (int v = 0; v < form.values; ++v) {
      values.push_back(words.draw(form.value, random));
      facts.needles.push_back(needle_of(form, key, values.back()));
    }
  }
  shuffle(std::span(facts.needles), random);
  shuffle(std::span(entries), random);
  entries.resize(static_cast<std::size_t>(form.queries));
  for (const auto& [key, values] : entries) {
    facts.asked.push_back(key);
    facts.answers.insert(facts.answers.end(), values.begin(), values.end());
  }
  return facts;
}

// The needles among `size` lines of noise or of other needles.
std::string niah_lines(const NiahForm& form, const std::vector<std::string>& needles,
                       NiahWords words, int size, Random random) {
  std::vector<std::string> lines(static_cast<std::size_t>(size), kNoise);
  if (form.hay == NiahHay::needles) {
    for (std::string& line : lines) {
      const std::string key = words.draw(form.key, random);
      line = needle_of(form, key, words.draw(form.value, random));
    }
  }
  const auto places = choose(needles.size(), lines.size(), random);
  for (std::size_t i = needles.size(); i-- > 0;) {
    lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(places[i]), needles[i]);
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

}  // namespace

RulerPrompt make_niah(const NiahForm& form, const Haystack& essays, const Vocabulary& vocabulary,
                      const RulerSample& sample, const EncodeBegun& encode) {
  Random random = sample.random;
  NiahWords words(vocabulary);
  const NiahFacts facts = draw_facts(form, words, random);
  const NiahWording say = wording(form, listed_keys(facts.asked));
  if (form.hay == NiahHay::essays) {
    const auto hidden = at_depths(facts.needles, random);
    return {
        essays.prompt(
            sample.prompt_tokens, hidden, say.question,
            [&](const std::string& text) { return encode(say.head + text, say.answer); }, random),
        facts.answers};
  }
  const auto write = [&](int size) {
    return say.head + niah_lines(form, facts.needles, words, size, random) + say.question;
  };
  return {fit(sample, static_cast<int>(facts.needles.size()), write, say.answer, encode),
          facts.answers};
}

}  // namespace winnow::eval
