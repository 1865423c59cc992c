#include "grammar/automaton.h"

#include <algorithm>
#include <bitset>

namespace winnow::grammar {
namespace {

std::size_t hash_of(std::span<const Automaton::Place> places, bool ends, bool pops_open) {
  std::uint64_t hash = (ends ? 1 : 0) | (pops_open ? 2 : 0);
  for (const Automaton::Place& place : places) {
    const auto value = static_cast<std::uint64_t>(static_cast<std::uint32_t>(place.node)) << 32 |
                       static_cast<std::uint32_t>(place.stack);
    hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

Automaton::Automaton(const Grammar& grammar)
    : grammar_(grammar), frames_{{-1, kBottom}, {-1, kOpen}} {
  const Place begin{grammar.root, kBottom};
  start_ = intern({&begin, 1});
}

Automaton::State Automaton::open_state(std::span<const std::int32_t> nodes) {
  std::vector<Place> begins;
  for (const std::int32_t node : nodes) {
    begins.push_back({node, kOpen});
  }
  return intern(begins);
}

Automaton::State Automaton::popped(Stack stack) {
  if (popped_.size() <= static_cast<std::size_t>(stack)) {
    popped_.resize(frames_.size(), kUnknown);
  }
  if (popped_[static_cast<std::size_t>(stack)] == kUnknown) {
    const Frame frame = frames_[static_cast<std::size_t>(stack)];
    const Place begin{frame.node, frame.below};
    const State state = frame.node < 0 ? kDead : intern({&begin, 1});
    popped_[static_cast<std::size_t>(stack)] = state;
  }
  return popped_[static_cast<std::size_t>(stack)];
}

Automaton::Stack Automaton::push(std::int32_t node, Stack below) {
  const auto key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(node)) << 32 |
                   static_cast<std::uint32_t>(below);
  const auto [place, is_new] = stacks_.try_emplace(key, static_cast<Stack>(frames_.size()));
  if (is_new) {
    frames_.push_back({node, below});
  }
  return place->second;
}

void Automaton::visit(Place place) {
  if (std::ranges::find(seen_, place) == seen_.end()) {
    seen_.push_back(place);
    open_.push_back(place);
  }
}

// Follows whatever takes no byte: empty edges, rules that begin, rules that end.
Automaton::State Automaton::intern(std::span<const Place> begins) {
  StateData data;
  seen_.clear();
  open_.clear();
  std::ranges::for_each(begins, [this](Place place) { visit(place); });
  while (!open_.empty()) {
    const Place place = open_.back();
    open_.pop_back();
    const Grammar::Node& node = grammar_.nodes[static_cast<std::size_t>(place.node)];
    if (!node.edges.empty()) {
      data.places.push_back(place);
    }
    for (const std::int32_t next : node.empty) {
      visit({next, place.stack});
    }
    for (const Grammar::Call& call : node.calls) {
      const bool is_last = grammar_.nodes[static_cast<std::size_t>(call.to)].only_ends;
      visit({call.begin, is_last ? place.stack : push(call.to, place.stack)});
    }
    if (node.ends) {
      if (place.stack == kBottom) {
        data.ends = true;
      } else if (place.stack == kOpen) {
        data.pops_open = true;
      } else {
        const Frame frame = frames_[static_cast<std::size_t>(place.stack)];
        visit({frame.node, frame.below});
      }
    }
  }
  if (data.places.empty() && !data.ends && !data.pops_open) {
    return kDead;
  }
  std::ranges::sort(data.places);
  const std::size_t hash = hash_of(data.places, data.ends, data.pops_open);
  for (auto [known, end] = by_hash_.equal_range(hash); known != end; ++known) {
    const StateData& other = states_[static_cast<std::size_t>(known->second)];
    if (other.places == data.places && other.ends == data.ends &&
        other.pops_open == data.pops_open) {
      return known->second;
    }
  }
  const auto state = static_cast<State>(states_.size());
  states_.push_back(std::move(data));
  by_hash_.emplace(hash, state);
  return state;
}

Automaton::State Automaton::take_step(State state, std::uint8_t byte) {
  std::vector<Place> begins;
  for (const Place& place : places(state)) {
    for (const Grammar::Edge& edge : grammar_.nodes[static_cast<std::size_t>(place.node)].edges) {
      if (edge.low <= byte && byte <= edge.high) {
        begins.push_back({edge.to, place.stack});
      }
    }
  }
  const State to = begins.empty() ? kDead : intern(begins);
  auto& next = states_[static_cast<std::size_t>(state)].next;
  if (!next) {
    next = std::make_unique<Next>();
    next->fill(kUnknown);
  }
  (*next)[byte] = to;
  return to;
}

std::vector<std::uint8_t> Automaton::distinct_bytes(State state) const {
  std::bitset<257> cuts;
  for (const Place& place : places(state)) {
    for (const Grammar::Edge& edge : grammar_.nodes[static_cast<std::size_t>(place.node)].edges) {
      cuts.set(edge.low);
      cuts.set(static_cast<std::size_t>(edge.high) + 1);
    }
  }
  std::vector<std::uint8_t> bytes;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (cuts.test(byte)) {
      bytes.push_back(static_cast<std::uint8_t>(byte));
    }
  }
  return bytes;
}

}  // namespace winnow::grammar
