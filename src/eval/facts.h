// Small invented facts, to be hidden in a text and asked for at its end.
#pragma once

#include <string>
#include <vector>

#include "base/random.h"

namespace winnow::eval {

struct Fact {
  std::string sentence;
  std::string question;
  std::vector<std::string> values;  // that an answer must contain literally
};

inline constexpr int kFactKinds = 5;

/// One of five kinds (a secret code, where something is kept, a train, a meeting, a phone number),
/// kind `index` % kFactKinds.
Fact make_fact(int index, Random& random);

/// An integer in [low, high).
int draw(Random& random, int low, int high);

/// Whether `text` contains `value`, with neither a letter nor a digit next to it.
bool holds_word(std::string_view text, std::string_view value);

}  // namespace winnow::eval
