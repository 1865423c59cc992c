// Publishes to routers which prefixes this server has cached, in vLLM's format.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "engine/prefix_listener.h"

namespace winnow::server {

/// The encoding of an event within a batch.
enum class KvEventFormat : std::uint8_t {
  maps,    // as in vLLM 0.33: by name
  arrays,  // as in vLLM up to 0.23: by position
};

/// Throws Error that names an unknown format.
KvEventFormat parse_kv_event_format(const std::string& name);

/// Throws Error that names `flag` unless the endpoint is "", tcp://HOST:PORT or ipc://PATH.
void check_endpoint(std::string_view flag, std::string_view endpoint);

/// Whether a publisher binds this endpoint, as vLLM does: one with a wildcard (tcp://*:5557,
/// tcp://[::]:5557) or of a file (ipc://...). It connects to any other, also to 127.0.0.1.
bool binds_endpoint(std::string_view endpoint);

struct KvEventsConfig {
  std::string endpoint;  // for ZeroMQ; "": nothing is published
  std::string replay;    // where batches can be requested again; "": nowhere
  std::string topic;
  KvEventFormat format = KvEventFormat::maps;
  int block_size = 16;  // tokens
};

/// Publishes added and removed prefixes on its own thread: the engine does not wait.
class KvEvents : public engine::PrefixListener {
 public:
  /// Sets the name by which routers know an adapter.
  virtual void name_adapter(const model::Lora* adapter, const std::string& name) = 0;
};

/// Binds the endpoint or connects to it (binds_endpoint()). Its destructor publishes that all
/// prefixes are gone. Throws Error when an endpoint cannot be used, or this build has no ZeroMQ.
std::unique_ptr<KvEvents> open_kv_events(const KvEventsConfig& config);

}  // namespace winnow::server
