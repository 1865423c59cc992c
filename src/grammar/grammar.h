// Grammars as automata over bytes; their rules call each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "grammar/expression.h"
#include "grammar/twins.h"

namespace winnow::grammar {

/// The nodes of all rules. Every node can be reached from the root's first node, and a text's end
/// can be reached from every node. Immutable.
struct Grammar {
  struct Edge {
    std::uint8_t low = 0;
    std::uint8_t high = 0;
    std::int32_t to = 0;
  };
  struct Call {
    std::int32_t begin = 0;  // of the called rule
    std::int32_t to = 0;     // where the text continues after the rule
  };
  struct Node {
    std::vector<Edge> edges = {};
    std::vector<Call> calls = {};
    std::vector<std::int32_t> empty = {};  // nodes reached without a byte
    bool ends = false;                     // a rule's text may end here
    bool only_ends = false;                // has no other way on: calls need not return
  };

  std::vector<Node> nodes;
  Twins twins;
  std::int32_t root = 0;
};

/// The memory of a grammar.
std::size_t bytes_of(const Grammar& grammar);

/// Throws Error if a rule is not defined, a rule calls itself before any byte (left recursion), no
/// text matches, or the automaton would be too large.
Grammar compile(const RuleSet& rules);

}  // namespace winnow::grammar
