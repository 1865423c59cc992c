#include "server/kv_events/block_chains.h"

#include <charconv>

#include "base/sha256.h"

namespace winnow::server {
namespace {

using Tokens = std::span<const std::int32_t>;

// A prompt can be made to have any weak hash, and so to pass for another's.
std::uint64_t hash_of(std::uint64_t parent, Tokens block) {
  Sha256 sha;
  sha.update(std::as_bytes(std::span(&parent, 1)));
  sha.update(std::as_bytes(block));
  const std::string digest = sha.finish();
  std::uint64_t hash = 0;
  std::from_chars(digest.data(), digest.data() + 16, hash, 16);
  return hash;
}

std::uint64_t hash_of(std::string_view adapter) {
  std::uint64_t hash = 0;
  for (const char letter : adapter) {
    const auto code = static_cast<std::int32_t>(static_cast<unsigned char>(letter));
    hash = hash_of(hash, Tokens(&code, 1));
  }
  return hash;
}

}  // namespace

std::vector<std::uint64_t> BlockChains::hashes_of(Tokens tokens, std::string_view adapter) const {
  std::vector<std::uint64_t> hashes;
  std::uint64_t hash = hash_of(adapter);
  for (; tokens.size() >= block_size_; tokens = tokens.subspan(block_size_)) {
    hash = hash_of(hash, tokens.first(block_size_));
    hashes.push_back(hash);
  }
  return hashes;
}

std::optional<StoredBlocks> BlockChains::add(Tokens tokens, std::string_view adapter) {
  const std::vector<std::uint64_t> hashes = hashes_of(tokens, adapter);
  // Whatever covers a block covers those before it, so what is new is a chain's end.
  std::size_t known = 0;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    known += ++states_[hashes[i]] > 1 ? 1 : 0;
  }
  if (known == hashes.size()) {
    return std::nullopt;
  }
  const Tokens fresh = tokens.subspan(known * block_size_, (hashes.size() - known) * block_size_);
  StoredBlocks stored{.hashes = {hashes.begin() + static_cast<std::ptrdiff_t>(known), hashes.end()},
                      .parent = {},
                      .tokens = {fresh.begin(), fresh.end()}};
  if (known > 0) {
    stored.parent = hashes[known - 1];
  }
  return stored;
}

std::vector<std::uint64_t> BlockChains::remove(Tokens tokens, std::string_view adapter) {
  std::vector<std::uint64_t> hashes = hashes_of(tokens, adapter);
  std::vector<std::uint64_t> gone;
  for (; !hashes.empty(); hashes.pop_back()) {
    const auto block = states_.find(hashes.back());
    if (block != states_.end() && --block->second == 0) {
      states_.erase(block);
      gone.push_back(hashes.back());
    }
  }
  return gone;
}

}  // namespace winnow::server
