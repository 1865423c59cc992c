#include "eval/ruler/tracking.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "eval/chains.h"
#include "eval/haystack.h"
#include "eval/ruler/draws.h"

namespace winnow::eval {
namespace {

constexpr int kFewestLines = 5;  // as many as assignments

// The trailing spaces of copies and of the answer's beginning are RULER's.
std::string tracking_text(const Chain& chain, int size, Random random) {
  std::vector<std::string> lines(static_cast<std::size_t>(size), kNoise);
  const auto places = choose(chain.names.size(), lines.size(), random);
  for (std::size_t i = chain.names.size(); i-- > 0;) {
    lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(places[i]),
                 var_assignment(chain, i) + (i > 0 ? " " : ""));
  }
  return kTrackingTask + fmt::format("{}", fmt::join(lines, "\n")) + "\n" +
         tracking_question(chain);
}

std::string tracking_begun(const Chain& chain) {
  return " " + tracking_answer(chain) + " ";
}

// A text of up to 500 tokens with three-letter names, and its answer.
std::string solved_example(const EncodeBegun& encode, Random random) {
  constexpr int kMostTokens = 500;
  const Chain chain = draw_chains({.letters = 3}, random).front();
  const std::string begun = tracking_begun(chain);
  const auto size = largest_fit(kMostTokens, kFewestLines, [&](int size) {
    return encode(tracking_text(chain, size, random), begun).size();
  });
  return fmt::format("{}{} {}\n\n", tracking_text(chain, size.value_or(kFewestLines), random),
                     begun, fmt::join(chain.names, " "));
}

}  // namespace

RulerPrompt make_tracking(const RulerSample& sample, const EncodeBegun& encode) {
  Random random = sample.random;
  const std::string example = solved_example(encode, Random(random.bits()));
  const Chain chain = draw_chains({}, random).front();
  const auto write = [&](int size) { return example + tracking_text(chain, size, random); };
  return {fit(sample, kFewestLines, write, tracking_begun(chain), encode), chain.names};
}

}  // namespace winnow::eval
