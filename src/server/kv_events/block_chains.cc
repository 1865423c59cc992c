#include "server/kv_events/block_chains.h"

#include <charconv>
#include <utility>

#include "base/sha256.h"

namespace winnow::server {
namespace {

using Tokens = std::span<const std::int32_t>;

// A strong hash: a prompt could be crafted to collide with another's weak hash.
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

std::optional<StoredBlocks> BlockChains::add(StateNumber number, StateNumber base, Tokens tokens,
                                             std::string_view adapter) {
  State state = base == 0 ? State{} : states_.at(base);
  state.rest.insert(state.rest.end(), tokens.begin(), tokens.end());
  Tokens rest = state.rest;
  StoredBlocks stored;
  for (; rest.size() >= block_size_; rest = rest.subspan(block_size_)) {
    const Tokens block = rest.first(block_size_);
    const std::uint64_t parent = state.last != nullptr ? state.last->hash : hash_of(adapter);
    const std::uint64_t hash = hash_of(parent, block);
    const auto [found, is_new] = blocks_.try_emplace(hash, Block{hash, state.last});
    if (is_new) {  // then so are the blocks after it
      if (state.last != nullptr) {
        ++state.last->uses;
        if (stored.hashes.empty()) {
          stored.parent = parent;
        }
      }
      stored.hashes.push_back(hash);
      stored.tokens.insert(stored.tokens.end(), block.begin(), block.end());
    }
    state.last = &found->second;
  }
  if (state.last != nullptr) {
    ++state.last->uses;
  }
  states_[number] = {state.last, {rest.begin(), rest.end()}};
  return stored.hashes.empty() ? std::nullopt : std::optional(std::move(stored));
}

std::vector<std::uint64_t> BlockChains::remove(StateNumber number) {
  std::vector<std::uint64_t> gone;
  Block* block = states_.at(number).last;
  states_.erase(number);
  while (block != nullptr && --block->uses == 0) {
    gone.push_back(block->hash);
    block = block->before;
    blocks_.erase(gone.back());
  }
  return gone;
}

}  // namespace winnow::server
