// Regular languages over characters, to combine constraints: a pattern and a length, two patterns,
// a name that differs from some others.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "grammar/code_points.h"
#include "grammar/expression.h"

namespace winnow::grammar {

/// A deterministic automaton over code points. Every state leads to an accepting one, except for
/// the first state of an empty language.
class Regular {
 public:
  struct Transition {
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    int to = 0;
  };
  struct State {
    std::vector<Transition> transitions = {};  // sorted, without overlaps
    bool accepts = false;
  };
  using Ptr = std::shared_ptr<const Regular>;

  /// The language of an expression without rules, with Spelling::plain. Throws Error if the
  /// automaton would be too large.
  static Ptr of(const Expression& expression);
  /// All texts of `least` to `most` characters; -1: any number.
  static Ptr of_length(int least, int most);
  static Ptr of_texts(const std::vector<std::string>& texts);

  /// Throw Error if the automaton would be too large.
  [[nodiscard]] static Ptr intersection(const Regular& a, const Regular& b);
  [[nodiscard]] static Ptr difference(const Regular& a, const Regular& b);

  explicit Regular(std::vector<State> states);

  [[nodiscard]] const std::vector<State>& states() const { return states_; }
  [[nodiscard]] bool is_empty() const;
  [[nodiscard]] bool accepts(const std::string& text) const;

 private:
  std::vector<State> states_;  // the first one is the start
};

}  // namespace winnow::grammar
