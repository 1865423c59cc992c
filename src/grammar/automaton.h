// A grammar at work: where a text stands, byte by byte.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/grammar.h"

namespace winnow::grammar {

/// A pushdown automaton that is determinised lazily. A state is the set of all positions of a text
/// in the grammar; each position is a node and a stack of return nodes. States and stacks are
/// interned, so a known step is one look-up. Not thread-safe.
class Automaton {
 public:
  using State = std::int32_t;
  using Stack = std::int32_t;
  static constexpr State kDead = -1;
  /// Stacks that hold nothing: the text's end is below, or it is not said what is.
  static constexpr Stack kBottom = 0;
  static constexpr Stack kOpen = 1;

  struct Place {
    std::int32_t node = 0;
    Stack stack = kBottom;
    auto operator<=>(const Place&) const = default;  // NOLINT(modernize-use-nullptr): misread
  };

  /// `grammar` must outlive this.
  explicit Automaton(const Grammar& grammar);

  [[nodiscard]] const Grammar& grammar() const { return grammar_; }
  /// Where a text begins.
  [[nodiscard]] State start() const { return start_; }
  /// Where texts stand that are at one of `nodes`, on a stack that is not known.
  State open_state(std::span<const std::int32_t> nodes);
  /// Where texts stand whose rule has ended on `stack`.
  State popped(Stack stack);

  /// The state after `byte`; kDead if no text continues with it.
  State step(State state, std::uint8_t byte) {
    Next* next = states_[static_cast<std::size_t>(state)].next.get();
    if (next != nullptr && (*next)[byte] != kUnknown) {
      return (*next)[byte];
    }
    return take_step(state, byte);
  }

  /// Places from which bytes lead on, in order.
  [[nodiscard]] std::span<const Place> places(State state) const {
    return states_[static_cast<std::size_t>(state)].places;
  }
  /// The text may end here.
  [[nodiscard]] bool ends(State state) const {
    return states_[static_cast<std::size_t>(state)].ends;
  }
  /// The rule that was begun on kOpen may end here.
  [[nodiscard]] bool pops_open(State state) const {
    return states_[static_cast<std::size_t>(state)].pops_open;
  }
  /// Bytes from which on the state goes another way than for those before, in order.
  [[nodiscard]] std::vector<std::uint8_t> distinct_bytes(State state) const;

  [[nodiscard]] std::size_t size() const { return states_.size(); }

 private:
  static constexpr State kUnknown = -2;
  using Next = std::array<State, 256>;
  struct StateData {
    std::vector<Place> places;
    bool ends = false;
    bool pops_open = false;
    std::unique_ptr<Next> next = {};
  };
  struct Frame {
    std::int32_t node;  // where the text goes on
    Stack below;
  };

  State take_step(State state, std::uint8_t byte);
  State intern(std::span<const Place> begins);
  void visit(Place place);
  Stack push(std::int32_t node, Stack below);

  const Grammar& grammar_;
  std::vector<StateData> states_;
  std::unordered_multimap<std::size_t, State> by_hash_;
  std::vector<Frame> frames_;
  std::unordered_map<std::uint64_t, Stack> stacks_;  // by node and stack below
  std::vector<State> popped_;                        // by stack
  std::vector<Place> open_;                          // of intern(): to be visited
  std::vector<Place> seen_;
  State start_ = kDead;
};

}  // namespace winnow::grammar
