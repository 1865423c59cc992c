// Computes which tokens may come next in each state of a grammar.
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

/// For most tokens, only the current rule decides whether they may come: such tokens end within it.
/// They are computed once for each position in the rule. The others end the rule and continue after
/// it. Their bytes after the rule's end form a tree, which is small and mostly shallow; only this
/// tree is tried on the actual stack.
///
/// Positions that are alike for the next few bytes (Twins) share the results for tokens of at most
/// that length: within a string of at most 100 characters, all positions but the last ones do. So
/// tokens are split into layers by length. Not thread-safe.
class TokenMasks {
 public:
  using State = Automaton::State;

  /// Both must outlive this.
  TokenMasks(Automaton& automaton, const Vocabulary& vocabulary)
      : automaton_(automaton), vocabulary_(vocabulary) {}

  /// The tokens that may come in `state`, without end tokens. Valid until the next call of mask()
  /// or prepare().
  const TokenMask& mask(State state);

  /// Computes what rules alone decide for all reachable positions, until `seconds` are over. The
  /// rest is computed on demand.
  void prepare(double seconds);

  /// Finished masks are dropped beyond this: parts, which take longer to compute, stay.
  static constexpr std::size_t kMostMaskBytes = std::size_t{4} << 20;
  /// The memory of all masks and parts of masks.
  [[nodiscard]] std::size_t bytes() const { return part_bytes_ + masks_.size() * bytes_of_mask(); }
  /// The number of stored walks over a layer's tokens.
  [[nodiscard]] std::size_t parts() const;

 private:
  // A lazily built tree of the bytes that tokens have after the end of a rule.
  struct Rest {
    std::vector<std::int32_t> members;  // nodes of the trie with these bytes after the end
    std::vector<std::pair<std::uint8_t, std::int32_t>> children = {};
    bool has_children = false;  // children have been computed
  };
  struct Local {
    const TokenTrie& trie;                  // the tokens of one layer
    std::vector<std::int32_t> tokens = {};  // allowed by the rule alone, if few
    TokenMask mask = {};                    // the same, if many
    std::vector<Rest> rests = {};           // the first is the root; empty: no token continues
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

  [[nodiscard]] std::size_t words() const { return (vocabulary_.size() + 63) / 64; }
  [[nodiscard]] std::size_t bytes_of_mask() const;
  Local& local(std::size_t layer, const Nodes& nodes);
  [[nodiscard]] Nodes twins(std::size_t layer, const Nodes& nodes) const;
  Local walk(const TokenTrie& trie, State begin);
  void walk_rest(Local& local, std::int32_t rest, State state, TokenMask& mask);
  void find_children(Local& local, std::int32_t rest);
  std::map<Stacks, Nodes> nodes_by_stacks(State state) const;

  Automaton& automaton_;
  const Vocabulary& vocabulary_;
  std::array<Locals, kDepths.size() + 1> locals_;  // by layer
  std::size_t part_bytes_ = 0;                     // of locals_
  std::unordered_map<State, TokenMask> masks_;
};

}  // namespace winnow::grammar
