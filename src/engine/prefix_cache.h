// Cache states of earlier sequences, for later ones with the same prefix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/prefix_listener.h"
#include "engine/runner.h"

namespace winnow::engine {

/// Why a state was stored.
enum class PrefixPurpose : std::uint8_t {
  interval,      // stored at regular intervals, in case others branch here
  continuation,  // others have branched here, or will continue from here
  stored,        // a continuation that is already on disk, or will be written by its copy
};

/// A radix tree of token sequences. Some of its nodes hold the state of a cache that has taken
/// exactly the tokens from the root to the node. Under eviction a state cannot be cut to a shorter
/// one, so only prefixes with a stored state can be used. `State` has a length().
template <class State>
class PrefixTree {
 public:
  /// The adapter with which a state was computed; null: the model alone. Each adapter has a tree of
  /// its own, because the same tokens have different entries under it.
  using Adapter = std::shared_ptr<const model::Lora>;
  using Purpose = PrefixPurpose;

  struct Match {
    std::shared_ptr<const State> state;  // of the longest known prefix, or null
    int length = 0;                      // of that prefix
    int common = 0;                      // tokens shared with some earlier sequence
  };

  struct Prefix {
    std::vector<std::int32_t> tokens;
    std::shared_ptr<const State> state;
    Adapter adapter;
    Purpose purpose = Purpose::interval;

    /// Worth storing on disk, but not there. States with an adapter are never stored in files.
    [[nodiscard]] bool is_unstored() const {
      return purpose == Purpose::continuation && adapter == nullptr;
    }
  };

  /// `listener` (may be null) must outlive this.
  explicit PrefixTree(PrefixListener* listener = nullptr);
  ~PrefixTree();

  /// The longest prefix of `tokens` with a stored state, which is marked as used now.
  Match find(std::span<const std::int32_t> tokens, const Adapter& adapter = nullptr);
  /// Stores `state`, the cache after `tokens`; replaces an existing one.
  void insert(std::span<const std::int32_t> tokens, std::shared_ptr<const State> state,
              Purpose purpose = Purpose::continuation, const Adapter& adapter = nullptr);
  /// Whether there is a state of exactly these tokens, which is marked as used now.
  bool touch(std::span<const std::int32_t> tokens, const Adapter& adapter);
  /// Removes and returns the least recently used state; nullopt when there is none. Those that
  /// `is_spared` (may be null) names go when there are no others.
  std::optional<Prefix> take_oldest(const std::function<bool(const State&)>& is_spared = nullptr);
  /// Removes the state of exactly these tokens, if there is one.
  void remove(std::span<const std::int32_t> tokens, const Adapter& adapter);

  struct Unstored {
    std::vector<std::int32_t> tokens;
    std::shared_ptr<const State> state;
  };
  /// The state used last that is worth storing on disk and not there yet. Marks it as stored.
  std::optional<Unstored> take_unstored();
  /// States held.
  [[nodiscard]] std::size_t size() const { return by_use_.size(); }
  /// Tokens on the edges of the trees, which take memory in addition to the states.
  [[nodiscard]] std::size_t tokens() const;

 private:
  struct Node;
  struct Place;

  static Place walk(Node& root, std::span<const std::int32_t> tokens);
  [[nodiscard]] Node* find_state(std::span<const std::int32_t> tokens,
                                 const Adapter& adapter) const;
  Prefix take(Node& node);
  void tell_stored(const Node& node, std::span<const std::int32_t> tokens,
                   const Adapter& adapter) const;
  static Node& node_at(Node& root, std::span<const std::int32_t> tokens);
  static std::vector<std::int32_t> tokens_to(const Node& node);
  [[nodiscard]] const Adapter& adapter_of(const Node& node) const;
  [[nodiscard]] bool is_unstored(const Node& node) const;
  void touch(Node& node);
  static void tidy(Node* node);

  PrefixListener* listener_;
  StateNumber last_number_ = 0;
  std::map<Adapter, std::unique_ptr<Node>> roots_;  // always has the root without an adapter
  std::map<std::uint64_t, Node*> by_use_;           // nodes with a state, least recently used first
  std::uint64_t clock_ = 0;
};

/// The states in the cache's memory. They share pages with each other and with running sequences.
/// The tree shows where sequences branch, and the engine stores a state there.
using PrefixCache = PrefixTree<SequenceState>;

}  // namespace winnow::engine
