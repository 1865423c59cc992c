#include "server/kv_events/kv_events.h"

#include <charconv>
#include <system_error>

#include "base/error.h"

namespace winnow::server {

KvEventFormat parse_kv_event_format(const std::string& name) {
  require(name == "maps" || name == "arrays", "--kv-events-format {}: expected maps or arrays",
          name);
  return name == "maps" ? KvEventFormat::maps : KvEventFormat::arrays;
}

void check_endpoint(std::string_view flag, std::string_view endpoint) {
  constexpr std::string_view kTcp = "tcp://";
  constexpr std::string_view kFile = "ipc://";
  if (endpoint.empty() || (endpoint.starts_with(kFile) && endpoint.size() > kFile.size())) {
    return;
  }
  // ZeroMQ takes a port above 65535 modulo 65536.
  const std::size_t colon = endpoint.rfind(':');
  int port = 0;
  if (endpoint.starts_with(kTcp) && colon > kTcp.size()) {
    const std::string_view digits = endpoint.substr(colon + 1);
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    port = code == std::errc() && end == digits.data() + digits.size() ? port : 0;
  }
  require(port >= 1 && port <= 65535,
          "{} {}: expected tcp://HOST:PORT with a port from 1 to 65535, or ipc://PATH", flag,
          endpoint);
}

bool binds_endpoint(std::string_view endpoint) {
  return endpoint.find('*') != std::string_view::npos ||
         endpoint.find("::") != std::string_view::npos || endpoint.starts_with("ipc://");
}

}  // namespace winnow::server
