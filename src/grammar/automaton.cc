#include "grammar/automaton.h"

#include <algorithm>
#include <bitset>

#include "grammar/memory.h"

namespace winnow::grammar {

Automaton::Automaton(const Grammar& grammar, std::size_t most_sets)
    : grammar_(grammar),
      most_sets_(most_sets),
      below_(grammar.nodes.size(), -1),
      is_open_(grammar.nodes.size()) {
  find_classes();
  const Place begin{grammar.root, StackSets::kBottom};
  start_ = close({&begin, 1});
}

// Bytes that no edge of the grammar tells apart are one class: most grammars have a few dozen.
void Automaton::find_classes() {
  std::bitset<257> cuts;
  for (const Grammar::Node& node : grammar_.nodes) {
    for (const Grammar::Edge& edge : node.edges) {
      cuts.set(edge.low);
      cuts.set(static_cast<std::size_t>(edge.high) + 1);
    }
  }
  std::size_t last = 0;
  for (std::size_t byte = 0; byte < class_of_.size(); ++byte) {
    last += byte > 0 && cuts.test(byte) ? 1 : 0;
    class_of_[byte] = static_cast<std::uint8_t>(last);
  }
  classes_ = last + 1;
}

std::size_t Automaton::bytes() const {
  return sets_.bytes() + tables_ * (classes_ * sizeof(State) + kBlock) + bytes_in(next_) +
         bytes_in(popped_) + bytes_in(below_) + is_open_.size() / 8;
}

Automaton::State Automaton::open_state(std::span<const std::int32_t> nodes) {
  std::vector<Place> begins;
  for (const std::int32_t node : nodes) {
    begins.push_back({node, StackSets::kOpen});
  }
  return close(begins);
}

Automaton::State Automaton::popped(Stacks stacks) {
  const auto at = static_cast<std::size_t>(stacks);
  if (popped_.size() <= at) {
    popped_.resize(at + 1, kUnknown);
  }
  if (popped_[at] == kUnknown) {
    const std::vector<Place> begins = sets_.at(stacks).tops;  // a copy: close() makes sets
    popped_[at] = close(begins);
  }
  return popped_[at];
}

void Automaton::visit(Place place) {
  const auto at = static_cast<std::size_t>(place.node);
  const Stacks known = below_[at];
  if (known < 0) {
    visited_.push_back(place.node);
  }
  below_[at] = known < 0 ? place.stacks : sets_.unite(known, place.stacks);
  if (below_[at] != known && !is_open_[at]) {
    is_open_[at] = true;
    open_.push_back(place.node);
  }
}

// Follows all transitions without a byte: empty edges, calls of rules, ends of rules. A node that
// is reached with more stacks is followed again with all of them.
Automaton::State Automaton::close(std::span<const Place> begins) {
  StackSets::Set set;
  std::ranges::for_each(begins, [this](Place place) { visit(place); });
  while (!open_.empty()) {
    const std::int32_t number = open_.front();
    open_.pop_front();
    is_open_[static_cast<std::size_t>(number)] = false;
    const Grammar::Node& here = node(number);
    const Stacks stacks = below_[static_cast<std::size_t>(number)];
    for (const std::int32_t next : here.empty) {
      visit({next, stacks});
    }
    for (const Grammar::Call& call : here.calls) {
      visit({call.begin, node(call.to).only_ends ? stacks : sets_.push(call.to, stacks)});
    }
    if (here.ends) {
      const StackSets::Set below = sets_.at(stacks);  // a copy: visit() makes sets
      set.bottom = set.bottom || below.bottom;
      set.open = set.open || below.open;
      std::ranges::for_each(below.tops, [this](Place place) { visit(place); });
    }
  }
  std::ranges::sort(visited_);
  for (const std::int32_t number : visited_) {
    if (!node(number).edges.empty()) {
      set.tops.push_back({number, below_[static_cast<std::size_t>(number)]});
    }
    below_[static_cast<std::size_t>(number)] = -1;
  }
  visited_.clear();
  const bool is_dead = set.tops.empty() && !set.bottom && !set.open;
  return is_dead ? kDead : sets_.intern(std::move(set));
}

Automaton::State Automaton::take_step(State state, std::uint8_t byte) {
  if (is_full()) {
    return kDead;
  }
  std::vector<Place> begins;
  for (const Place& place : places(state)) {
    for (const Grammar::Edge& edge : node(place.node).edges) {
      if (edge.low <= byte && byte <= edge.high) {
        begins.push_back({edge.to, place.stacks});
      }
    }
  }
  const State to = close(begins);
  const auto at = static_cast<std::size_t>(state);
  if (next_.size() <= at) {
    next_.resize(at + 1);
  }
  if (next_[at] == nullptr) {
    next_[at] = std::make_unique<State[]>(classes_);
    std::fill_n(next_[at].get(), classes_, kUnknown);
    ++tables_;
  }
  next_[at][class_of_[byte]] = to;
  return to;
}

std::vector<std::uint8_t> Automaton::distinct_bytes(State state) const {
  std::bitset<257> cuts;
  for (const Place& place : places(state)) {
    for (const Grammar::Edge& edge : node(place.node).edges) {
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
