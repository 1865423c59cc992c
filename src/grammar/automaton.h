// Runs a grammar over a text, byte by byte.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/stack_sets.h"

namespace winnow::grammar {

/// A pushdown automaton that is determinised lazily. A state is the set of all positions of a text
/// in the grammar, each with the stacks of return nodes below it. Equal states have one number, so
/// a known step is one look-up. Not thread-safe.
class Automaton {
 public:
  using State = Stacks;  // the positions are the stacks' tops
  static constexpr State kDead = -1;
  /// Some hundred MiB. Texts of usual grammars need a few dozen sets, those of most ambiguous
  /// grammars a few per byte; but there are grammars that need exponentially many.
  static constexpr std::size_t kMostSets = std::size_t{1} << 20;

  /// `grammar` must outlive this. With `most_sets` sets of stacks, all new steps fail.
  explicit Automaton(const Grammar& grammar, std::size_t most_sets = kMostSets);

  [[nodiscard]] const Grammar& grammar() const { return grammar_; }
  /// The state before the first byte.
  [[nodiscard]] State start() const { return start_; }
  /// The state of a text at any of `nodes`, with an unknown stack below.
  State open_state(std::span<const std::int32_t> nodes);
  /// The state after a rule has ended on `stacks`; kDead if they are empty.
  State popped(Stacks stacks);

  /// The state after `byte`; kDead if no text continues with it.
  State step(State state, std::uint8_t byte) {
    const auto at = static_cast<std::size_t>(state);
    if (at < next_.size() && next_[at] != nullptr && next_[at][class_of_[byte]] != kUnknown) {
      return next_[at][class_of_[byte]];
    }
    return take_step(state, byte);
  }

  /// The positions that have edges, sorted by node. Valid until the next state is made.
  [[nodiscard]] std::span<const Place> places(State state) const { return sets_.at(state).tops; }
  /// Whether the text may end here.
  [[nodiscard]] bool ends(State state) const { return sets_.at(state).bottom; }
  /// Whether the rule that started on StackSets::kOpen may end here.
  [[nodiscard]] bool pops_open(State state) const { return sets_.at(state).open; }
  /// The bytes, in order, at which the next state may differ from that of the byte before.
  [[nodiscard]] std::vector<std::uint8_t> distinct_bytes(State state) const;

  /// Whether steps fail because there are too many sets of stacks.
  [[nodiscard]] bool is_full() const { return sets_.size() >= most_sets_; }
  /// The memory of all states and steps, without the grammar.
  [[nodiscard]] std::size_t bytes() const;

 private:
  static constexpr State kUnknown = -2;

  const Grammar::Node& node(std::int32_t number) const {
    return grammar_.nodes[static_cast<std::size_t>(number)];
  }
  void find_classes();
  State take_step(State state, std::uint8_t byte);
  State close(std::span<const Place> begins);
  void visit(Place place);

  const Grammar& grammar_;
  std::size_t most_sets_;
  StackSets sets_;
  std::array<std::uint8_t, 256> class_of_{};  // bytes of a class lead to the same states
  std::size_t classes_ = 0;
  std::vector<std::unique_ptr<State[]>> next_;  // by state and class; null: no step has been taken
  std::size_t tables_ = 0;                      // in next_
  std::vector<State> popped_;                   // by stacks
  std::vector<Stacks> below_;                   // for close(), by node; -1: not reached
  std::vector<std::int32_t> visited_;           // nodes with an entry in below_
  std::deque<std::int32_t> open_;               // nodes to follow
  std::vector<bool> is_open_;                   // by node: whether it is in open_
  State start_ = kDead;
};

}  // namespace winnow::grammar
