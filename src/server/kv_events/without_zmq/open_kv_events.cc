#include "base/error.h"
#include "server/kv_events/kv_events.h"

namespace winnow::server {

std::unique_ptr<KvEvents> open_kv_events(const KvEventsConfig& config) {
  fail("--kv-events {}: this build has no ZeroMQ (libzmq3-dev and libmsgpack-cxx-dev)",
       config.endpoint);
}

}  // namespace winnow::server
