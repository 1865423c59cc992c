// Common part of RULER's tasks: a prompt filled up to a given length.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"

namespace winnow::eval {

/// The tokens of a prompt and of its answer's beginning, which the model continues.
using EncodeBegun =
    std::function<std::vector<std::int32_t>(const std::string& text, const std::string& answer)>;

struct RulerPrompt {
  std::vector<std::int32_t> tokens;
  std::vector<std::string> answers;
};

/// One sample of a task.
struct RulerSample {
  int length = 0;         // tokens of prompt and answer
  int prompt_tokens = 0;  // maximum tokens of the prompt
  int index = 0;          // within its length and task
  Random random{0};
};

/// The largest number >= `least` (1 or more) for which `tokens` are at most `most`; nullopt
/// if there is none. Assumes that `tokens` grows with the number, which it nearly always does.
std::optional<int> largest_fit(int most, int least, const std::function<std::size_t(int)>& tokens);

/// The prompt `write(size)` with the largest size, at least `least`, that fits into the sample.
/// Error if none fits.
std::vector<std::int32_t> fit(const RulerSample& sample, int least,
                              const std::function<std::string(int size)>& write,
                              const std::string& answer, const EncodeBegun& encode);

}  // namespace winnow::eval
