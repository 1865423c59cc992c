#include "eval/variables.h"

#include <algorithm>

#include "base/error.h"
#include "eval/chains.h"
#include "eval/facts.h"

namespace winnow::eval {

namespace {

// Plain problems use one-letter names if there are enough letters.
ChainForm form_of(const VariablesOptions& options) {
  const int names = options.chains * (options.hops + 1);
  ChainForm form{.chains = options.chains, .hops = options.hops};
  if (options.style == "plain") {
    form.letters = names <= 20 ? 1 : 3;
    form.lowest = 100;
  }
  return form;
}

std::string assignment(const Chain& chain, std::size_t index, bool ruler) {
  if (ruler) {
    return var_assignment(chain, index) + ".";
  }
  const std::string& name = chain.names[index];
  return index == 0
             ? fmt::format("Variable {} is set to {}.", name, chain.value)
             : fmt::format("Variable {} is a copy of variable {}.", name, chain.names[index - 1]);
}

// Puts each chain's assignments at random depths, in order.
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
  return ruler ? "\n" + tracking_question(chain) + "\n" + tracking_answer(chain)
               : fmt::format("\n\nQuestion: What is the value of variable {}?\nAnswer:",
                             chain.names.back());
}

// The first run of digits 0 to 9 at or after `at`; "" when there is none.
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
      const std::vector<Chain> chains = draw_chains(form_of(options), random);
      const std::vector<Hidden> hidden = scatter(chains, ruler, random);
      Question question;
      question.id = fmt::format("{}/{}", length, repeat);
      const EncodePrompt with_task = [&](const std::string& text) {
        return encode(ruler ? kTrackingTask + text : text);
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
