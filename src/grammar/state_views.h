// Which states of an automaton go the same ways for a while.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "grammar/automaton.h"

namespace winnow::grammar {

/// What a state looks like from within the next few bytes: two states of one view take the same
/// texts of up to so many bytes, and end their rule behind the same of them. States whose rule has
/// called another have a view of their own, as their stacks would have to be compared. Not
/// thread-safe.
class StateViews {
 public:
  using View = std::int32_t;

  /// `automaton` must outlive this.
  explicit StateViews(Automaton& automaton) : automaton_(automaton) {}

  /// Views are comparable for equal `bytes` alone.
  View find(Automaton::State state, int bytes);

 private:
  using Ways = std::vector<std::int32_t>;

  View view_of(Ways ways);
  [[nodiscard]] bool has_called(Automaton::State state) const;

  Automaton& automaton_;
  std::unordered_map<std::uint64_t, View> known_;  // by state and bytes
  std::map<Ways, View> views_;
};

}  // namespace winnow::grammar
