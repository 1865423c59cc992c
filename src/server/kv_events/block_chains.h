// Which blocks of tokens the engine can go on from, as routers count them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/prefix_listener.h"

namespace winnow::server {

/// Blocks that follow each other.
struct StoredBlocks {
  std::vector<std::uint64_t> hashes;
  std::optional<std::uint64_t> parent;  // the block before the first; nullopt: it begins a prefix
  std::vector<std::int32_t> tokens;     // of the blocks
};

/// Routers know prefixes as chains of blocks of equal length, each with a hash of itself and all
/// before it. Under eviction a state can be taken up only where it was saved: a chain is there
/// while a state covers it. Tokens behind a state's last whole block count for nothing. A state
/// costs time and memory for the tokens behind its base, not for all before them.
class BlockChains {
 public:
  using StateNumber = engine::StateNumber;

  explicit BlockChains(int block_size) : block_size_(static_cast<std::size_t>(block_size)) {}

  /// There is a state `number`, as engine::PrefixListener::prefix_stored() says: the blocks that no
  /// other state covers; nullopt: none. "": the model alone.
  std::optional<StoredBlocks> add(StateNumber number, StateNumber base,
                                  std::span<const std::int32_t> tokens, std::string_view adapter);
  /// The state is gone: the hashes of blocks that no other covers, last first.
  std::vector<std::uint64_t> remove(StateNumber number);
  /// Blocks that are covered.
  [[nodiscard]] std::size_t size() const { return blocks_.size(); }

 private:
  struct Block {
    std::uint64_t hash;
    Block* before;  // null: it begins a prefix
    int uses = 0;   // blocks behind it, and states of which it is the last
  };
  struct State {
    Block* last = nullptr;           // null: it fills no block
    std::vector<std::int32_t> rest;  // tokens behind that block
  };

  std::size_t block_size_;
  std::unordered_map<std::uint64_t, Block> blocks_;  // by hash
  std::unordered_map<StateNumber, State> states_;
};

}  // namespace winnow::server
