#include "eval/variables.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "eval/facts.h"

namespace winnow::eval {

const char* const kVariablesNoise =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

namespace {

struct Chain {
  std::vector<std::string> names;
  std::string value;
};

// One letter each as long as that is enough, as in plain problems; RULER's have five.
std::string draw_name(Random& random, std::size_t letters) {
  std::string name;
  for (std::size_t i = 0; i < letters; ++i) {
    name += static_cast<char>('A' + draw(random, 0, 26));
  }
  return name;
}

std::vector<Chain> draw_chains(const VariablesOptions& options, Random& random) {
  const int names = options.chains * (options.hops + 1);
  const std::size_t letters = options.style == "ruler" ? 5 : names <= 20 ? 1 : 3;
  const int low = options.style == "ruler" ? 10000 : 100;
  std::set<std::string> taken;
  const auto fresh = [&taken](const auto& make) {
    std::string word = make();
    while (!taken.insert(word).second) {
      word = make();
    }
    return word;
  };
  std::vector<Chain> chains(static_cast<std::size_t>(options.chains));
  for (Chain& chain : chains) {
    chain.value = fresh([&] { return std::to_string(draw(random, low, low * 10)); });
    for (int i = 0; i <= options.hops; ++i) {
      chain.names.push_back(fresh([&] { return draw_name(random, letters); }));
    }
  }
  return chains;
}

std::string assignment(const Chain& chain, std::size_t index, bool ruler) {
  const std::string& name = chain.names[index];
  if (ruler) {
    return index == 0 ? fmt::format("VAR {} = {}.", name, chain.value)
                      : fmt::format("VAR {} = VAR {}.", name, chain.names[index - 1]);
  }
  return index == 0
             ? fmt::format("Variable {} is set to {}.", name, chain.value)
             : fmt::format("Variable {} is a copy of variable {}.", name, chain.names[index - 1]);
}

// Every chain's assignments at random depths, in their order.
std::vector<Hidden> scatter(const std::vector<Chain>& chains, bool ruler, Random& random) {
  std::vector<Hidden> hidden;
  for (const Chain& chain : chains) {
    std::vector<double> depths(chain.names.size());
    std::ranges::generate(depths, [&random] { return random.uniform(); });
    std::ranges::sort(depths);
    for (std::size_t i = 0; i < depths.size(); ++i) {
      hidden.push_back({assignment(chain, i, ruler), depths[i]});
    }
  }
  return hidden;
}

std::string ask(const Chain& chain, bool ruler) {
  return ruler ? fmt::format(
                     "\nQuestion: Find all variables that are assigned the value {0} in the text "
                     "above.\nAnswer: According to the chain(s) of variable assignment in the text "
                     "above, {1} variables are assigned the value {0}, they are:",
                     chain.value, chain.names.size())
               : fmt::format("\n\nQuestion: What is the value of variable {}?\nAnswer:",
                             chain.names.back());
}

// The digits that begin at or after `at`, and 0 to 9 alone; "" when there are none.
std::string number_from(const std::string& text, std::size_t at) {
  const std::size_t begin = text.find_first_of("0123456789", at);
  if (begin == std::string::npos) {
    return "";
  }
  return text.substr(begin, text.find_first_not_of("0123456789", begin) - begin);
}

std::string stated_number(const std::string& text) {
  const std::size_t stated = text.find("answer is");
  if (stated != std::string::npos) {
    return number_from(text, stated);
  }
  const std::size_t last = text.find_last_of("0123456789");
  if (last == std::string::npos) {
    return "";
  }
  const std::size_t before = text.find_last_not_of("0123456789", last);
  return number_from(text, before == std::string::npos ? 0 : before);
}

}  // namespace

std::vector<Question> make_variables(const Haystack& hay, const EncodePrompt& encode,
                                     const VariablesOptions& options) {
  require(!options.lengths.empty(), "--lengths: at least one is needed");
  require(options.style == "ruler" || options.style == "plain",
          "--style {}: expected ruler or plain", options.style);
  require(options.chains >= 1 && options.chains <= 100, "--chains {}: expected 1 to 100",
          options.chains);
  require(options.hops >= 0 && options.hops <= 100, "--hops {}: expected 0 to 100", options.hops);
  require(options.repeats >= 1, "--repeats {}: at least 1 is needed", options.repeats);
  require(options.max_tokens >= 1, "--max-tokens {}: at least 1 is needed", options.max_tokens);
  const bool ruler = options.style == "ruler";
  std::vector<Question> questions;
  for (const int length : options.lengths) {
    for (int repeat = 0; repeat < options.repeats; ++repeat) {
      Random random(options.seed,
                    mix64(static_cast<std::uint64_t>(length)) + static_cast<std::uint64_t>(repeat));
      const std::vector<Chain> chains = draw_chains(options, random);
      const std::vector<Hidden> hidden = scatter(chains, ruler, random);
      Question question;
      question.id = fmt::format("{}/{}", length, repeat);
      const EncodePrompt with_task = [&](const std::string& text) {
        return encode(ruler ? "Memorize and track the chain(s) of variable assignment hidden in "
                              "the following text.\n\n" +
                                  text
                            : text);
      };
      question.prompt = hay.prompt(length - options.max_tokens, hidden, ask(chains.front(), ruler),
                                   with_task, random);
      question.max_tokens = options.max_tokens;
      question.stop = {"\n\n", "Question:"};
      question.facts = {{"length", length}, {"style", options.style}};
      question.facts["values"] =
          ruler ? chains.front().names : std::vector<std::string>{chains.front().value};
      questions.push_back(std::move(question));
    }
  }
  return questions;
}

Json grade_variables(const Question& question, const std::string& text) {
  const auto values = question.facts.at("values").get<std::vector<std::string>>();
  if (question.facts.at("style") == "plain") {
    return {{"correct", stated_number(text) == values.front()}};
  }
  const auto found = std::ranges::count_if(
      values, [&text](const std::string& name) { return holds_word(text, name); });
  return {{"correct", static_cast<std::size_t>(found) == values.size()},
          {"found", static_cast<double>(found) / static_cast<double>(values.size())}};
}

}  // namespace winnow::eval
