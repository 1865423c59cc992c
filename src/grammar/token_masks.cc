#include "grammar/token_masks.h"

#include <algorithm>
#include <deque>
#include <set>

#include "base/stopwatch.h"
#include "grammar/memory.h"

namespace winnow::grammar {
namespace {

constexpr std::size_t kFewTokens = 512;

void allow(std::span<const std::int32_t> tokens, TokenMask& mask) {
  for (const std::int32_t token : tokens) {
    mask[static_cast<std::size_t>(token) / 64] |= std::uint64_t{1} << (token % 64);
  }
}

}  // namespace

std::size_t TokenMasks::bytes_of_mask() const {
  return words() * sizeof(TokenMask::value_type) + sizeof(TokenMask) + kBlock + kHashed;
}

const TokenMask& TokenMasks::mask(State state) {
  if (masks_.size() * bytes_of_mask() > kMostMaskBytes) {
    masks_.clear();
  }
  const auto [place, is_new] = masks_.try_emplace(state);
  TokenMask& mask = place->second;
  if (!is_new) {
    return mask;
  }
  mask.resize(words());
  for (const auto& [stacks, nodes] : nodes_by_stacks(state)) {
    for (std::size_t layer = 0; layer < locals_.size(); ++layer) {
      if (vocabulary_.layers()[layer].empty()) {
        continue;
      }
      Local& part = local(layer, nodes);
      allow(part.tokens, mask);
      for (std::size_t i = 0; i < part.mask.size(); ++i) {
        mask[i] |= part.mask[i];
      }
      const State behind = part.rests.empty() ? Automaton::kDead : automaton_.popped(stacks);
      if (behind != Automaton::kDead) {
        walk_rest(part, 0, behind, mask);
      }
    }
  }
  return mask;
}

std::map<Stacks, TokenMasks::Nodes> TokenMasks::nodes_by_stacks(State state) const {
  std::map<Stacks, Nodes> groups;
  for (const Place& place : automaton_.places(state)) {
    groups[place.stacks].push_back(place.node);  // sorted, as places are
  }
  return groups;
}

TokenMasks::Nodes TokenMasks::twins(std::size_t layer, const Nodes& nodes) const {
  return layer < kDepths.size() ? automaton_.grammar().twins.find(layer, nodes) : nodes;
}

TokenMasks::Local& TokenMasks::local(std::size_t layer, const Nodes& nodes) {
  Nodes key = twins(layer, nodes);
  const auto found = locals_[layer].find(key);
  if (found != locals_[layer].end()) {
    return found->second;
  }
  Local made = walk(vocabulary_.layers()[layer], automaton_.open_state(key));
  part_bytes_ += sizeof(Locals::value_type) + kHashed + bytes_in(key) + bytes_in(made.tokens) +
                 bytes_in(made.mask) + bytes_in(made.rests);
  for (const Rest& rest : made.rests) {
    part_bytes_ += bytes_in(rest.members);
  }
  return locals_[layer].emplace(std::move(key), std::move(made)).first->second;
}

std::size_t TokenMasks::parts() const {
  std::size_t parts = 0;
  for (const Locals& layer : locals_) {
    parts += layer.size();
  }
  return parts;
}

// Tries all tokens of a layer from `begin`, on an unknown stack.
TokenMasks::Local TokenMasks::walk(const TokenTrie& layer, State begin) {
  Local local{.trie = layer};
  Rest root;
  std::vector<State> states(layer.most_bytes() + 1, Automaton::kDead);
  states[0] = begin;
  const auto trie = layer.nodes();
  for (std::size_t i = 1; i < trie.size();) {
    const TokenTrie::Node& node = trie[i];
    const State state = automaton_.step(states[node.depth - 1U], node.byte);
    const auto end = static_cast<std::size_t>(node.end);
    if (state == Automaton::kDead) {
      i = end;
      continue;
    }
    const auto tokens = layer.tokens_at(i);
    local.tokens.insert(local.tokens.end(), tokens.begin(), tokens.end());
    if (automaton_.pops_open(state) && end > i + 1) {
      root.members.push_back(static_cast<std::int32_t>(i));
    }
    states[node.depth] = state;
    i = automaton_.places(state).empty() ? end : i + 1;
  }
  if (!root.members.empty()) {
    local.rests.push_back(std::move(root));
  }
  if (local.tokens.size() > kFewTokens) {
    local.mask.resize(words());
    allow(std::exchange(local.tokens, {}), local.mask);
  }
  return local;
}

void TokenMasks::find_children(Local& local, std::int32_t rest) {
  const auto trie = local.trie.nodes();
  const std::size_t first = local.rests.size();
  const std::size_t before = bytes_in(local.rests);
  std::array<std::int32_t, 256> by_byte;
  by_byte.fill(-1);
  const std::vector<std::int32_t> members = local.rests[static_cast<std::size_t>(rest)].members;
  std::vector<std::pair<std::uint8_t, std::int32_t>> children;
  for (const std::int32_t member : members) {
    const auto end = trie[static_cast<std::size_t>(member)].end;
    for (std::int32_t child = member + 1; child < end;
         child = trie[static_cast<std::size_t>(child)].end) {
      std::int32_t& known = by_byte[trie[static_cast<std::size_t>(child)].byte];
      if (known < 0) {
        known = static_cast<std::int32_t>(local.rests.size());
        children.emplace_back(trie[static_cast<std::size_t>(child)].byte, known);
        local.rests.emplace_back();
      }
      local.rests[static_cast<std::size_t>(known)].members.push_back(child);
    }
  }
  Rest& parent = local.rests[static_cast<std::size_t>(rest)];
  parent.children = std::move(children);
  parent.has_children = true;
  part_bytes_ += bytes_in(parent.children) + bytes_in(local.rests) - before;
  for (std::size_t i = first; i < local.rests.size(); ++i) {
    part_bytes_ += bytes_in(local.rests[i].members);
  }
}

void TokenMasks::walk_rest(Local& local, std::int32_t rest, State state, TokenMask& mask) {
  if (!local.rests[static_cast<std::size_t>(rest)].has_children) {
    find_children(local, rest);
  }
  const std::size_t count = local.rests[static_cast<std::size_t>(rest)].children.size();
  for (std::size_t i = 0; i < count; ++i) {
    const auto [byte, child] = local.rests[static_cast<std::size_t>(rest)].children[i];
    const State next = automaton_.step(state, byte);
    if (next == Automaton::kDead) {
      continue;
    }
    for (const std::int32_t member : local.rests[static_cast<std::size_t>(child)].members) {
      allow(local.trie.tokens_at(static_cast<std::size_t>(member)), mask);
    }
    walk_rest(local, child, next, mask);
  }
}

void TokenMasks::prepare(double seconds) {
  Stopwatch clock;
  std::set<Nodes> known;
  std::deque<Nodes> open;
  std::set<State> seen;
  std::vector<State> states{automaton_.start()};
  // Adds the nodes of a state, and of the states that follow when a called rule ends. Called rules
  // are followed separately, so stacks stay low.
  const auto absorb = [&] {
    while (!states.empty()) {
      const State state = states.back();
      states.pop_back();
      if (state == Automaton::kDead || !seen.insert(state).second) {
        continue;
      }
      for (const auto& [stacks, nodes] : nodes_by_stacks(state)) {
        Nodes farthest = twins(kDepths.size() - 1, nodes);
        if (known.insert(farthest).second) {
          open.push_back(std::move(farthest));
        }
        states.push_back(automaton_.popped(stacks));
      }
    }
  };
  absorb();
  while (!open.empty() && clock.seconds() < seconds) {
    const Nodes nodes = std::move(open.front());
    open.pop_front();
    for (std::size_t layer = 0; layer < locals_.size(); ++layer) {
      if (vocabulary_.layers()[layer].empty()) {
        continue;
      }
      Local& part = local(layer, nodes);
      if (!part.rests.empty() && !part.rests[0].has_children) {
        find_children(part, 0);
      }
    }
    const State state = automaton_.open_state(nodes);
    for (const std::uint8_t byte : automaton_.distinct_bytes(state)) {
      states.push_back(automaton_.step(state, byte));
    }
    absorb();
  }
}

}  // namespace winnow::grammar
