#include "server/kv_events/zmq/event_batch.h"

#include <msgpack.hpp>
#include <string_view>

namespace winnow::server {
namespace {

using Packer = msgpack::packer<msgpack::sbuffer>;

constexpr std::string_view kMedium = "GPU";  // routers' name for the engine's own cache

// Writes an event's tag and fields: by name, or by position.
class EventPacker {
 public:
  EventPacker(Packer& packer, KvEventFormat format, std::string_view tag, std::uint32_t fields)
      : packer_(packer), named_(format == KvEventFormat::maps) {
    if (named_) {
      packer_.pack_map(fields + 1);
    } else {
      packer_.pack_array(fields + 1);
    }
    field("type", tag);
  }

  template <class Value>
  void field(std::string_view name, const Value& value) {
    if (named_) {
      packer_.pack(name);
    }
    packer_.pack(value);
  }
  void absent(std::string_view name) { field(name, msgpack::type::nil_t()); }

 private:
  Packer& packer_;
  bool named_;
};

void pack_event(const BlocksStored& event, KvEventFormat format, int block_size, Packer& packer) {
  EventPacker fields(packer, format, "BlockStored", 7);
  fields.field("block_hashes", event.blocks.hashes);
  if (event.blocks.parent) {
    fields.field("parent_block_hash", *event.blocks.parent);
  } else {
    fields.absent("parent_block_hash");
  }
  fields.field("token_ids", event.blocks.tokens);
  fields.field("block_size", block_size);
  fields.absent("lora_id");  // adapters have names here, no ids
  fields.field("medium", kMedium);
  if (event.adapter.empty()) {
    fields.absent("lora_name");
  } else {
    fields.field("lora_name", event.adapter);
  }
}

void pack_event(const BlocksRemoved& event, KvEventFormat format, int /*block_size*/,
                Packer& packer) {
  EventPacker fields(packer, format, "BlockRemoved", 2);
  fields.field("block_hashes", event.hashes);
  fields.field("medium", kMedium);
}

void pack_event(const AllBlocksCleared& /*event*/, KvEventFormat format, int /*block_size*/,
                Packer& packer) {
  EventPacker(packer, format, "AllBlocksCleared", 0);
}

}  // namespace

std::string pack_batch(double time, const std::vector<KvEvent>& events, KvEventFormat format,
                       int block_size) {
  msgpack::sbuffer buffer;
  Packer packer(buffer);
  packer.pack_array(3);
  packer.pack_double(time);
  packer.pack_array(static_cast<std::uint32_t>(events.size()));
  for (const KvEvent& event : events) {
    std::visit([&](const auto& each) { pack_event(each, format, block_size, packer); }, event);
  }
  packer.pack(0);
  return {buffer.data(), buffer.size()};
}

}  // namespace winnow::server
