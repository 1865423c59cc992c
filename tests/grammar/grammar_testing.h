// A slow and simple matcher of grammars, for comparison with the fast one.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/grammar.h"

namespace winnow::grammar::testing {

/// The set of all possible positions of a text, each with its whole stack.
class SlowMatcher {
 public:
  explicit SlowMatcher(const Grammar& grammar) : grammar_(&grammar) { add(grammar.root, {}); }

  /// Returns false if no text of the grammar continues with `bytes`.
  bool push(std::string_view bytes) {
    for (const char byte : bytes) {
      const auto places = std::exchange(places_, {});
      for (const auto& [node, stack] : places) {
        for (const Grammar::Edge& edge : grammar_->nodes[static_cast<std::size_t>(node)].edges) {
          if (edge.low <= static_cast<std::uint8_t>(byte) &&
              static_cast<std::uint8_t>(byte) <= edge.high) {
            add(edge.to, stack);
          }
        }
      }
    }
    return !places_.empty();
  }

  [[nodiscard]] bool ends() const {
    for (const auto& [node, stack] : places_) {
      if (stack.empty() && grammar_->nodes[static_cast<std::size_t>(node)].ends) {
        return true;
      }
    }
    return false;
  }

 private:
  using Place = std::pair<int, std::vector<int>>;

  void add(int node, const std::vector<int>& stack) {
    if (!places_.insert({node, stack}).second) {
      return;
    }
    const Grammar::Node& here = grammar_->nodes[static_cast<std::size_t>(node)];
    for (const int next : here.empty) {
      add(next, stack);
    }
    for (const Grammar::Call& call : here.calls) {
      std::vector<int> deeper = stack;
      deeper.push_back(call.to);
      add(call.begin, deeper);
    }
    if (here.ends && !stack.empty()) {
      add(stack.back(), {stack.begin(), stack.end() - 1});
    }
  }

  const Grammar* grammar_;
  std::set<Place> places_;
};

inline bool accepts(const Grammar& grammar, std::string_view text) {
  SlowMatcher matcher(grammar);
  return matcher.push(text) && matcher.ends();
}

inline bool accepts(const RuleSet& rules, std::string_view text) {
  return accepts(compile(rules), text);
}

}  // namespace winnow::grammar::testing
