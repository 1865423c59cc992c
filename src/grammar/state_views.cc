#include "grammar/state_views.h"

#include <algorithm>

namespace winnow::grammar {
namespace {

constexpr std::size_t kMostKnown = 1 << 16;  // what is looked at; states beyond share nothing
constexpr std::int32_t kOwnView = -1;
constexpr std::int32_t kDeadEnd = -1;

}  // namespace

StateViews::View StateViews::find(Automaton::State state, int bytes) {
  const auto key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(state)) << 32 |
                   static_cast<std::uint32_t>(bytes);
  if (const auto known = known_.find(key); known != known_.end()) {
    return known->second;
  }
  if (known_.size() >= kMostKnown || has_called(state)) {
    return view_of({kOwnView, state});
  }
  Ways ways{automaton_.pops_open(state) ? 1 : 0};
  if (bytes > 0) {
    std::int32_t last = kDeadEnd;
    for (const std::uint8_t byte : automaton_.distinct_bytes(state)) {
      const Automaton::State next = automaton_.step(state, byte);
      const std::int32_t way = next == Automaton::kDead ? kDeadEnd : find(next, bytes - 1);
      if (way != last) {
        ways.insert(ways.end(), {byte, way});
        last = way;
      }
    }
  }
  const View view = view_of(std::move(ways));
  known_[key] = view;
  return view;
}

StateViews::View StateViews::view_of(Ways ways) {
  return views_.try_emplace(std::move(ways), static_cast<View>(views_.size())).first->second;
}

bool StateViews::has_called(Automaton::State state) const {
  return std::ranges::any_of(automaton_.places(state), [](const Automaton::Place& place) {
    return place.stack != Automaton::kOpen;
  });
}

}  // namespace winnow::grammar
