// Regular languages over characters, for what must hold at the same time: a pattern and a length,
// two patterns, a name that is none of some others.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "grammar/code_points.h"
#include "grammar/expression.h"

namespace winnow::grammar {

/// A deterministic automaton over code points. Every state can still be accepted from, but for the
/// first of a language without texts.
class Regular {
 public:
  struct Transition {
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    int to = 0;
  };
  struct State {
    std::vector<Transition> transitions = {};  // in order, no two overlap
    bool accepts = false;
  };
  using Ptr = std::shared_ptr<const Regular>;

  /// Of an expression without rules, whose characters are spelled plainly. Throws Error when the
  /// automaton would be too large.
  static Ptr of(const Expression& expression);
  /// All texts of `least` to `most` characters; -1: any number.
  static Ptr of_length(int least, int most);
  static Ptr of_texts(const std::vector<std::string>& texts);

  /// Throw Error as of() does.
  [[nodiscard]] static Ptr intersection(const Regular& a, const Regular& b);
  [[nodiscard]] static Ptr difference(const Regular& a, const Regular& b);

  explicit Regular(std::vector<State> states);

  [[nodiscard]] const std::vector<State>& states() const { return states_; }
  [[nodiscard]] bool is_empty() const;
  [[nodiscard]] bool accepts(const std::string& text) const;

 private:
  std::vector<State> states_;  // the first one begins
};

}  // namespace winnow::grammar
