#include "eval/ruler/prompt.h"

#include <algorithm>

#include "base/error.h"

namespace winnow::eval {

std::optional<int> largest_fit(int most, int least, const std::function<std::size_t(int)>& tokens) {
  const auto fits = [&](int size) { return static_cast<std::int64_t>(tokens(size)) <= most; };
  if (!fits(least)) {
    return std::nullopt;
  }
  int good = least;
  int bad = 2 * least;
  while (fits(bad)) {
    good = bad;
    bad *= 2;
  }
  while (bad - good > 1) {
    const int middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

std::vector<std::int32_t> fit(const RulerSample& sample, int least,
                              const std::function<std::string(int size)>& write,
                              const std::string& answer, const EncodeBegun& encode) {
  const auto size = largest_fit(sample.prompt_tokens, least,
                                [&](int size) { return encode(write(size), answer).size(); });
  require(size.has_value(),
          "--lengths: without the tokens of the answer, {} prompt tokens have no room: {} are "
          "needed at least",
          std::max(0, sample.prompt_tokens), encode(write(least), answer).size());
  return encode(write(*size), answer);
}

}  // namespace winnow::eval
