// Grammars as automata over bytes, whose rules call each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "grammar/expression.h"
#include "grammar/twins.h"

namespace winnow::grammar {

/// Nodes of all rules. Every node can be reached from the root's first one, and a text's end from
/// it. Immutable.
struct Grammar {
  struct Edge {
    std::uint8_t low = 0;
    std::uint8_t high = 0;
    std::int32_t to = 0;
  };
  struct Call {
    std::int32_t begin = 0;  // of the rule that is called
    std::int32_t to = 0;     // where the text goes on behind it
  };
  struct Node {
    std::vector<Edge> edges = {};
    std::vector<Call> calls = {};
    std::vector<std::int32_t> empty = {};  // nodes that are as good as this one
    bool ends = false;                     // a rule's text may end here
    bool only_ends = false;  // nothing but that: who calls a rule need not come back here
  };

  std::vector<Node> nodes;
  Twins twins;
  std::int32_t root = 0;
};

/// Throws Error when a rule is not defined, calls itself before any byte (left recursion), no text
/// fits, or the automaton would be too large.
Grammar compile(const RuleSet& rules);

}  // namespace winnow::grammar
