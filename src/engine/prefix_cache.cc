#include "engine/prefix_cache.h"

#include <algorithm>
#include <cassert>
#include <ranges>
#include <utility>

#include "engine/host_copies.h"

namespace winnow::engine {

using Tokens = std::span<const std::int32_t>;

template <class State>
struct PrefixTree<State>::Node {
  Node* parent = nullptr;
  std::vector<std::int32_t> edge;  // tokens from the parent to this node; empty only at the root
  std::map<std::int32_t, std::unique_ptr<Node>> children;  // by the first token of their edges
  std::shared_ptr<const State> state;
  StateNumber number = 0;  // the state's number for the listener
  std::uint64_t used = 0;
  Purpose purpose = Purpose::interval;
};

// The place where tokens end in the tree: `beyond` tokens past `node` on an edge to a child.
template <class State>
struct PrefixTree<State>::Place {
  Node* node = nullptr;
  std::size_t depth = 0;  // of `node`, in tokens
  std::size_t beyond = 0;
};

namespace {

std::size_t common_length(Tokens a, Tokens b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

template <class State>
PrefixTree<State>::PrefixTree(PrefixListener* listener) : listener_(listener) {
  roots_[nullptr] = std::make_unique<Node>();
}
template <class State>
PrefixTree<State>::~PrefixTree() = default;

template <class State>
auto PrefixTree<State>::walk(Node& root, Tokens tokens) -> Place {
  Place place{&root, 0, 0};
  while (place.depth < tokens.size()) {
    const Tokens rest = tokens.subspan(place.depth);
    const auto child = place.node->children.find(rest.front());
    if (child == place.node->children.end()) {
      break;
    }
    const std::size_t common = common_length(child->second->edge, rest);
    if (common < child->second->edge.size()) {
      place.beyond = common;
      break;
    }
    place.node = child->second.get();
    place.depth += common;
  }
  return place;
}

template <class State>
auto PrefixTree<State>::find(Tokens tokens, const Adapter& adapter) -> Match {
  const auto root = roots_.find(adapter);
  if (root == roots_.end()) {
    return {};
  }
  const Place place = walk(*root->second, tokens);
  Match match;
  match.common = static_cast<int>(place.depth + place.beyond);
  std::size_t depth = place.depth;
  for (Node* node = place.node; node->parent != nullptr; node = node->parent) {
    if (node->state) {
      touch(*node);
      if (node->purpose == Purpose::interval) {
        node->purpose = Purpose::continuation;
      }
      match.state = node->state;
      match.length = static_cast<int>(depth);
      break;
    }
    depth -= node->edge.size();
  }
  return match;
}

template <class State>
void PrefixTree<State>::insert(Tokens tokens, std::shared_ptr<const State> state, Purpose purpose,
                               const Adapter& adapter) {
  assert(!tokens.empty() && state->length() == static_cast<int>(tokens.size()));
  auto& root = roots_[adapter];
  if (!root) {
    root = std::make_unique<Node>();
  }
  Node& node = node_at(*root, tokens);
  node.purpose = node.state ? std::max(node.purpose, purpose) : purpose;
  if (listener_ != nullptr && !node.state) {
    node.number = ++last_number_;
    tell_stored(node, tokens, adapter);
  }
  node.state = std::move(state);
  touch(node);
}

// The node with the state of exactly these tokens; null if there is none.
template <class State>
auto PrefixTree<State>::find_state(Tokens tokens, const Adapter& adapter) const -> Node* {
  const auto root = roots_.find(adapter);
  if (root == roots_.end()) {
    return nullptr;
  }
  const Place place = walk(*root->second, tokens);
  return place.depth == tokens.size() && place.node->state ? place.node : nullptr;
}

template <class State>
bool PrefixTree<State>::touch(Tokens tokens, const Adapter& adapter) {
  Node* node = find_state(tokens, adapter);
  if (node != nullptr) {
    touch(*node);
  }
  return node != nullptr;
}

template <class State>
void PrefixTree<State>::remove(Tokens tokens, const Adapter& adapter) {
  if (Node* node = find_state(tokens, adapter); node != nullptr) {
    take(*node);
  }
}

template <class State>
void PrefixTree<State>::tell_stored(const Node& node, Tokens tokens, const Adapter& adapter) const {
  std::size_t known = tokens.size() - node.edge.size();
  const Node* base = node.parent;
  for (; base->parent != nullptr && !base->state; base = base->parent) {
    known -= base->edge.size();
  }
  listener_->prefix_stored(node.number, base->state ? base->number : 0, tokens.subspan(known),
                           adapter.get());
}

// The node for `tokens`, created if needed.
template <class State>
auto PrefixTree<State>::node_at(Node& root, Tokens tokens) -> Node& {
  Place place = walk(root, tokens);
  if (place.beyond > 0) {  // a new node splits the edge
    auto& slot = place.node->children[tokens[place.depth]];
    auto upper = std::make_unique<Node>();
    const auto cut = slot->edge.begin() + static_cast<std::ptrdiff_t>(place.beyond);
    upper->parent = place.node;
    upper->edge.assign(slot->edge.begin(), cut);
    slot->edge.erase(slot->edge.begin(), cut);
    slot->parent = upper.get();
    const std::int32_t first = slot->edge.front();
    upper->children[first] = std::move(slot);
    slot = std::move(upper);
    place = {slot.get(), place.depth + place.beyond, 0};
  }
  if (place.depth < tokens.size()) {
    auto leaf = std::make_unique<Node>();
    leaf->parent = place.node;
    leaf->edge.assign(tokens.begin() + static_cast<std::ptrdiff_t>(place.depth), tokens.end());
    auto& slot = place.node->children[leaf->edge.front()];
    slot = std::move(leaf);
    return *slot;
  }
  return *place.node;
}

template <class State>
void PrefixTree<State>::touch(Node& node) {
  by_use_.erase(node.used);
  node.used = ++clock_;
  by_use_[node.used] = &node;
}

template <class State>
auto PrefixTree<State>::take_oldest(const std::function<bool(const State&)>& is_spared)
    -> std::optional<Prefix> {
  if (by_use_.empty()) {
    return std::nullopt;
  }
  auto oldest = by_use_.begin();
  if (is_spared) {
    const auto other = std::ranges::find_if_not(
        by_use_, [&](const auto& entry) { return is_spared(*entry.second->state); });
    oldest = other != by_use_.end() ? other : oldest;
  }
  return take(*oldest->second);
}

template <class State>
auto PrefixTree<State>::take(Node& node) -> Prefix {
  by_use_.erase(node.used);
  Prefix prefix{tokens_to(node), std::move(node.state), adapter_of(node), node.purpose};
  if (listener_ != nullptr) {
    listener_->prefix_removed(node.number);
  }
  node.used = 0;
  tidy(&node);
  return prefix;
}

template <class State>
auto PrefixTree<State>::take_unstored() -> std::optional<Unstored> {
  for (const auto& [used, node] : std::views::reverse(by_use_)) {
    if (is_unstored(*node)) {
      node->purpose = Purpose::stored;
      return Unstored{tokens_to(*node), node->state};
    }
  }
  return std::nullopt;
}

// Only states without an adapter are stored in files.
template <class State>
bool PrefixTree<State>::is_unstored(const Node& node) const {
  return node.purpose == Purpose::continuation && adapter_of(node) == nullptr;
}

template <class State>
auto PrefixTree<State>::adapter_of(const Node& node) const -> const Adapter& {
  const Node* root = &node;
  while (root->parent != nullptr) {
    root = root->parent;
  }
  return std::ranges::find(roots_, root, [](const auto& entry) { return entry.second.get(); })
      ->first;
}

template <class State>
std::vector<std::int32_t> PrefixTree<State>::tokens_to(const Node& node) {
  std::vector<std::int32_t> tokens;
  for (const Node* at = &node; at != nullptr; at = at->parent) {
    tokens.insert(tokens.begin(), at->edge.begin(), at->edge.end());
  }
  return tokens;
}

// Removes nodes that lead to no state, and merges edges that no longer branch.
template <class State>
void PrefixTree<State>::tidy(Node* node) {
  while (node->parent != nullptr && !node->state && node->children.empty()) {
    Node* parent = node->parent;
    parent->children.erase(node->edge.front());
    node = parent;
  }
  if (node->parent != nullptr && !node->state && node->children.size() == 1) {
    std::unique_ptr<Node> child = std::move(node->children.begin()->second);
    child->edge.insert(child->edge.begin(), node->edge.begin(), node->edge.end());
    child->parent = node->parent;
    auto& slot = node->parent->children[child->edge.front()];
    slot = std::move(child);  // destroys `node`
  }
}

template <class State>
std::size_t PrefixTree<State>::tokens() const {
  std::size_t total = 0;
  std::vector<const Node*> todo;
  for (const auto& [adapter, root] : roots_) {
    todo.push_back(root.get());
  }
  while (!todo.empty()) {
    const Node* node = todo.back();
    todo.pop_back();
    total += node->edge.size();
    for (const auto& [token, child] : node->children) {
      todo.push_back(child.get());
    }
  }
  return total;
}

template class PrefixTree<SequenceState>;
template class PrefixTree<HostCopy>;

}  // namespace winnow::engine
