// The blocks of tokens that the engine has cached, counted as routers count them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/prefix_listener.h"

namespace winnow::server {

/// Consecutive blocks.
struct StoredBlocks {
  std::vector<std::uint64_t> hashes;
  std::optional<std::uint64_t> parent;  // the block before the first; nullopt: it begins a prefix
  std::vector<std::int32_t> tokens;     // of the blocks
};

/// Routers know prefixes as chains of blocks of equal length, each with a hash of itself and all
/// blocks before it. Under eviction, a state can be reused only where it was saved: a chain exists
/// while a state covers it. Tokens after a state's last whole block are ignored. A state
/// costs time and memory for the tokens after its base, not for all tokens before.
class BlockChains {
 public:
  using StateNumber = engine::StateNumber;

  explicit BlockChains(int block_size) : block_size_(static_cast<std::size_t>(block_size)) {}

  /// Adds state `number`, as in engine::PrefixListener::prefix_stored(): returns the blocks that no
  /// other state covers; nullopt: none. Adapter "": the base model.
  std::optional<StoredBlocks> add(StateNumber number, StateNumber base,
                                  std::span<const std::int32_t> tokens, std::string_view adapter);
  /// Removes the state: returns the hashes of blocks that no other state covers, last first.
  std::vector<std::uint64_t> remove(StateNumber number);
  /// Number of covered blocks.
  [[nodiscard]] std::size_t size() const { return blocks_.size(); }

 private:
  struct Block {
    std::uint64_t hash;
    Block* before;  // null: it begins a prefix
    int uses = 0;   // blocks that follow it, and states that end with it
  };
  struct State {
    Block* last = nullptr;           // null: it fills no block
    std::vector<std::int32_t> rest;  // tokens after that block
  };

  std::size_t block_size_;
  std::unordered_map<std::uint64_t, Block> blocks_;  // by hash
  std::unordered_map<StateNumber, State> states_;
};

}  // namespace winnow::server
