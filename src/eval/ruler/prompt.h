// What RULER's tasks have in common: a prompt with as much in it as there is room for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"

namespace winnow::eval {

/// The tokens of a prompt and of how its answer begins: the model goes on from there.
using EncodeBegun =
    std::function<std::vector<std::int32_t>(const std::string& text, const std::string& answer)>;

struct RulerPrompt {
  std::vector<std::int32_t> tokens;
  std::vector<std::string> answers;
};

/// One sample of a task.
struct RulerSample {
  int length = 0;         // tokens of prompt and answer
  int prompt_tokens = 0;  // most tokens of the prompt
  int index = 0;          // among those of its length and task
  Random random{0};
};

/// The largest number from `least` (1 or more) on for which `tokens` are at most `most`; nullopt
/// when there is none. `tokens` grows with the number, nearly always.
std::optional<int> largest_fit(int most, int least, const std::function<std::size_t(int)>& tokens);

/// The prompt `write(size)` with the largest size, at least `least`, that has room in the sample.
/// Error when none has.
std::vector<std::int32_t> fit(const RulerSample& sample, int least,
                              const std::function<std::string(int size)>& write,
                              const std::string& answer, const EncodeBegun& encode);

}  // namespace winnow::eval
