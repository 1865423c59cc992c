// Which tokens may come next, for every state of a grammar.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
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
/// short and mostly of few bytes, and only that is tried on the stack at hand. Not thread-safe.
class TokenMasks {
 public:
  using State = Automaton::State;

  /// Both must outlive this.
  TokenMasks(Automaton& automaton, const TokenTrie& trie) : automaton_(automaton), trie_(trie) {}

  /// Tokens that may come in `state`; those that end a text are not among them. Valid until the
  /// next call of prepare() or another mask.
  const TokenMask& mask(State state);

  /// Finds what rules alone decide, for what can be reached, until `seconds` are over. What is not
  /// reached by then is found when it is asked for.
  void prepare(double seconds);

  /// Masks and parts of masks that are kept.
  [[nodiscard]] std::size_t size() const { return masks_.size() + local_.size(); }

 private:
  // The continuations after the end of a rule within a token, as a lazily built tree.
  struct Rest {
    std::vector<std::int32_t> members;  // nodes of the trie that all have this behind the end
    std::vector<std::pair<std::uint8_t, std::int32_t>> children = {};
    bool has_children = false;  // they have been looked for
  };
  struct Local {
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

  Local& local(const Nodes& nodes);
  Local walk(const Nodes& nodes);
  void walk_rest(Local& local, std::int32_t rest, State state, TokenMask& mask);
  void find_children(Local& local, std::int32_t rest);
  std::map<Automaton::Stack, Nodes> nodes_by_stack(State state) const;

  Automaton& automaton_;
  const TokenTrie& trie_;
  std::unordered_map<Nodes, std::unique_ptr<Local>, NodesHash> local_;
  std::unordered_map<State, TokenMask> masks_;
};

}  // namespace winnow::grammar
