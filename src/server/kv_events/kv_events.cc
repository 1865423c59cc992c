#include "server/kv_events/kv_events.h"

#include "base/error.h"

namespace winnow::server {

KvEventFormat parse_kv_event_format(const std::string& name) {
  require(name == "maps" || name == "arrays", "--kv-events-format {}: expected maps or arrays",
          name);
  return name == "maps" ? KvEventFormat::maps : KvEventFormat::arrays;
}

}  // namespace winnow::server
