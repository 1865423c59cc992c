// Tells routers which prefixes this server can go on from, as vLLM tells them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "engine/prefix_listener.h"

namespace winnow::server {

/// How an event looks within a batch.
enum class KvEventFormat : std::uint8_t {
  maps,    // as vLLM 0.33: by name
  arrays,  // as vLLM up to 0.23: by position
};

/// Throws Error that names the format that there is not.
KvEventFormat parse_kv_event_format(const std::string& name);

/// Throws Error that names `flag` unless the endpoint is "", tcp://HOST:PORT or ipc://PATH.
void check_endpoint(std::string_view flag, std::string_view endpoint);

struct KvEventsConfig {
  std::string endpoint;  // of ZeroMQ; "": nothing is told
  std::string replay;    // where batches can be asked for again; "": nowhere
  std::string topic;
  KvEventFormat format = KvEventFormat::maps;
  int block_size = 16;  // tokens
};

/// Publishes prefixes that come and go, from a thread of its own: the engine does not wait.
class KvEvents : public engine::PrefixListener {
 public:
  /// The name that routers know an adapter by.
  virtual void name_adapter(const model::Lora* adapter, const std::string& name) = 0;
};

/// Binds an endpoint with a wildcard (tcp://*:5557, tcp://[::]:5557) or of a file (ipc://...), and
/// connects to any other, as vLLM does. When it ends it tells that all is gone. Throws Error when
/// an endpoint cannot be used, or this build has no ZeroMQ.
std::unique_ptr<KvEvents> open_kv_events(const KvEventsConfig& config);

}  // namespace winnow::server
