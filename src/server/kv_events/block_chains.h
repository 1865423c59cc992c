// Which blocks of tokens the engine can go on from, as routers count them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace winnow::server {

/// Blocks that follow each other.
struct StoredBlocks {
  std::vector<std::uint64_t> hashes;
  std::optional<std::uint64_t> parent;  // the block before the first; nullopt: it begins a prefix
  std::vector<std::int32_t> tokens;     // of the blocks
};

/// Routers know prefixes as chains of blocks of equal length, each with a hash of itself and all
/// before it. Under eviction a state can be taken up only where it was saved: a chain is there
/// while a state covers it. Tokens behind a state's last whole block count for nothing.
class BlockChains {
 public:
  explicit BlockChains(int block_size) : block_size_(static_cast<std::size_t>(block_size)) {}

  /// There is a state of `tokens`: the blocks that no other state covers; nullopt: none.
  std::optional<StoredBlocks> add(std::span<const std::int32_t> tokens, std::string_view adapter);
  /// The state is gone: the hashes of blocks that no other covers, last first.
  std::vector<std::uint64_t> remove(std::span<const std::int32_t> tokens, std::string_view adapter);
  /// Blocks that are covered.
  [[nodiscard]] std::size_t size() const { return states_.size(); }

 private:
  [[nodiscard]] std::vector<std::uint64_t> hashes_of(std::span<const std::int32_t> tokens,
                                                     std::string_view adapter) const;

  std::size_t block_size_;
  std::unordered_map<std::uint64_t, int> states_;  // how many cover a block, by its hash
};

}  // namespace winnow::server
