// Which tokens may come next, for every state of a grammar.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/token_trie.h"

namespace winnow::grammar {

/// One bit per token id.
using TokenMask = std::vector<std::uint64_t>;

/// Whether most tokens may come depends on the rule alone in which a text stands: such tokens end
/// within it, and are found once for each of its places. What is left are tokens that end the rule
/// and go on behind it. They are kept as a tree of what they hold behind the rule's end, which is
/// short and mostly of few bytes, and only that is tried on the stack at hand.
///
/// Places that look alike for the next few bytes (Twins) share what is found for tokens of as many
/// bytes: within a string of at most 100 characters all places do but the last ones. So tokens are
/// in layers by their length. Not thread-safe.
class TokenMasks {
 public:
  using State = Automaton::State;

  /// Both must outlive this.
  TokenMasks(Automaton& automaton, const Vocabulary& vocabulary)
      : automaton_(automaton), vocabulary_(vocabulary) {}

  /// Tokens that may come in `state`; those that end a text are not among them. Valid until the
  /// next call of prepare() or another mask.
  const TokenMask& mask(State state);

  /// Finds what rules alone decide, for what can be reached, until `seconds` are over. What is not
  /// reached by then is found when it is asked for.
  void prepare(double seconds);

  /// Masks and parts of masks that are kept.
  [[nodiscard]] std::size_t size() const { return masks_.size() + parts(); }
  /// Walks over a layer's tokens.
  [[nodiscard]] std::size_t parts() const;

 private:
  // The continuations after the end of a rule within a token, as a lazily built tree.
  struct Rest {
    std::vector<std::int32_t> members;  // nodes of the trie that all have this behind the end
    std::vector<std::pair<std::uint8_t, std::int32_t>> children = {};
    bool has_children = false;  // they have been looked for
  };
  struct Local {
    const TokenTrie& trie;                  // one layer's tokens
    std::vector<std::int32_t> tokens = {};  // that the rule alone allows, while they are few
    TokenMask mask = {};                    // else
    std::vector<Rest> rests = {};           // the first is the root; none: no token goes beyond
  };
  using Nodes = std::vector<std::int32_t>;
  struct NodesHash {
    std::size_t operator()(const Nodes& nodes) const {
      std::uint64_t hash = nodes.size();
      for (const std::int32_t node : nodes) {
        hash = (hash ^ static_cast<std::uint32_t>(node)) * 0x9E3779B97F4A7C15ULL;
        hash ^= hash >> 29;
      }
      return hash;
    }
  };

  using Locals = std::unordered_map<Nodes, Local, NodesHash>;

  Local& local(std::size_t layer, const Nodes& nodes);
  [[nodiscard]] Nodes twins(std::size_t layer, const Nodes& nodes) const;
  Local walk(const TokenTrie& trie, State begin);
  void walk_rest(Local& local, std::int32_t rest, State state, TokenMask& mask);
  static void find_children(Local& local, std::int32_t rest);
  std::map<Stacks, Nodes> nodes_by_stacks(State state) const;

  Automaton& automaton_;
  const Vocabulary& vocabulary_;
  std::array<Locals, kDepths.size() + 1> locals_;  // by layer
  std::unordered_map<State, TokenMask> masks_;
};

}  // namespace winnow::grammar
