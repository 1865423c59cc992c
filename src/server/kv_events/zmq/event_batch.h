// Events in vLLM's encoding.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "server/kv_events/block_chains.h"
#include "server/kv_events/kv_events.h"

namespace winnow::server {

struct BlocksStored {
  StoredBlocks blocks;
  std::string adapter;  // "": the base model
};
struct BlocksRemoved {
  std::vector<std::uint64_t> hashes;
};
struct AllBlocksCleared {};

using KvEvent = std::variant<BlocksStored, BlocksRemoved, AllBlocksCleared>;

/// A batch in msgpack: [seconds since 1970, events, rank 0].
std::string pack_batch(double time, const std::vector<KvEvent>& events, KvEventFormat format,
                       int block_size);

}  // namespace winnow::server
