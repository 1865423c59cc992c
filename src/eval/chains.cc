#include "eval/chains.h"

#include <fmt/format.h>

#include <set>

#include "eval/facts.h"

namespace winnow::eval {
namespace {

std::string draw_name(Random& random, std::size_t letters) {
  std::string name;
  for (std::size_t i = 0; i < letters; ++i) {
    name += static_cast<char>('A' + draw(random, 0, 26));
  }
  return name;
}

}  // namespace

const char* const kTrackingTask =
    "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n";

std::vector<Chain> draw_chains(const ChainForm& form, Random& random) {
  std::set<std::string> taken;
  const auto fresh = [&taken](const auto& make) {
    std::string word = make();
    while (!taken.insert(word).second) {
      word = make();
    }
    return word;
  };
  std::vector<Chain> chains(static_cast<std::size_t>(form.chains));
  for (Chain& chain : chains) {
    chain.value =
        fresh([&] { return std::to_string(draw(random, form.lowest, form.lowest * 10)); });
    for (int i = 0; i <= form.hops; ++i) {
      chain.names.push_back(fresh([&] { return draw_name(random, form.letters); }));
    }
  }
  return chains;
}

std::string var_assignment(const Chain& chain, std::size_t index) {
  const std::string& name = chain.names[index];
  return index == 0 ? fmt::format("VAR {} = {}", name, chain.value)
                    : fmt::format("VAR {} = VAR {}", name, chain.names[index - 1]);
}

std::string tracking_question(const Chain& chain) {
  return fmt::format(
      "Question: Find all variables that are assigned the value {} in the text above.",
      chain.value);
}

std::string tracking_answer(const Chain& chain) {
  return fmt::format(
      "Answer: According to the chain(s) of variable assignment in the text above, {} variables "
      "are assigned the value {}, they are:",
      chain.names.size(), chain.value);
}

}  // namespace winnow::eval
