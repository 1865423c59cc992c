// A grammar at work: where a text stands, byte by byte.
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

/// A pushdown automaton that is determinised lazily. A state is the set of all places of a text in
/// the grammar, each with the stacks of return nodes below it; it exists once, so a known step is
/// one look-up. Not thread-safe.
class Automaton {
 public:
  using State = Stacks;  // with the place on top
  static constexpr State kDead = -1;
  /// Some hundred MiB. Texts of usual grammars need a few dozen sets, those of most ambiguous ones
  /// a few for every byte; a grammar can be made for which it is exponentially many.
  static constexpr std::size_t kMostSets = std::size_t{1} << 20;

  /// `grammar` must outlive this. From `most_sets` sets of stacks on no step leads on.
  explicit Automaton(const Grammar& grammar, std::size_t most_sets = kMostSets);

  [[nodiscard]] const Grammar& grammar() const { return grammar_; }
  /// Where a text begins.
  [[nodiscard]] State start() const { return start_; }
  /// Where texts stand that are at one of `nodes`, on a stack that is not known.
  State open_state(std::span<const std::int32_t> nodes);
  /// Where texts stand whose rule has ended on `stacks`; kDead if nothing but the end is below.
  State popped(Stacks stacks);

  /// The state after `byte`; kDead if no text continues with it.
  State step(State state, std::uint8_t byte) {
    const auto at = static_cast<std::size_t>(state);
    if (at < next_.size() && next_[at] != nullptr && (*next_[at])[byte] != kUnknown) {
      return (*next_[at])[byte];
    }
    return take_step(state, byte);
  }

  /// Places from which bytes lead on, in order. Valid until the next state is made.
  [[nodiscard]] std::span<const Place> places(State state) const { return sets_.at(state).tops; }
  /// The text may end here.
  [[nodiscard]] bool ends(State state) const { return sets_.at(state).bottom; }
  /// The rule that was begun on StackSets::kOpen may end here.
  [[nodiscard]] bool pops_open(State state) const { return sets_.at(state).open; }
  /// Bytes from which on the state goes another way than for those before, in order.
  [[nodiscard]] std::vector<std::uint8_t> distinct_bytes(State state) const;

  /// Steps lead nowhere, since there are too many sets of stacks.
  [[nodiscard]] bool is_full() const { return sets_.size() >= most_sets_; }
  /// What is kept, in about KiB.
  [[nodiscard]] std::size_t size() const { return tables_ + sets_.size() / kSetsPerKib; }

 private:
  static constexpr State kUnknown = -2;
  static constexpr std::size_t kSetsPerKib = 8;
  using Next = std::array<State, 256>;

  const Grammar::Node& node(std::int32_t number) const {
    return grammar_.nodes[static_cast<std::size_t>(number)];
  }
  State take_step(State state, std::uint8_t byte);
  State close(std::span<const Place> begins);
  void visit(Place place);

  const Grammar& grammar_;
  std::size_t most_sets_;
  StackSets sets_;
  std::vector<std::unique_ptr<Next>> next_;  // by state; none: no step has been taken
  std::size_t tables_ = 0;                   // in next_
  std::vector<State> popped_;                // by stacks
  std::vector<Stacks> below_;                // of close(): by node; -1 where it has not been
  std::vector<std::int32_t> visited_;        // nodes of which below_ is set
  std::deque<std::int32_t> open_;            // nodes to be followed
  std::vector<bool> is_open_;                // by node: is in open_
  State start_ = kDead;
};

}  // namespace winnow::grammar
