// The environment of a process that joins a group of TCP ranks.
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "parallel/tcp_ranks.h"

namespace winnow::parallel {
namespace {

std::string text_in(const Environment& environment, const char* variable) {
  const char* text = environment(variable);
  return text == nullptr ? "" : text;
}

std::string required_in(const Environment& environment, const char* variable) {
  std::string text = text_in(environment, variable);
  require(
      !text.empty(),
      "RANK and WORLD_SIZE are set, but {} is not: set MASTER_ADDR to the address of rank 0 and "
      "MASTER_PORT to a free port there, or unset RANK",
      variable);
  return text;
}

int port_in(const Environment& environment) {
  const std::string text = required_in(environment, "MASTER_PORT");
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  require(error == std::errc() && end == text.data() + text.size() && port > 0 && port < 65536,
          "MASTER_PORT={}: expected a port", text);
  return port;
}

// Where torchrun's own store has the port, "True" is its value.
bool is_taken_by_torchrun(const Environment& environment) {
  const std::string value = text_in(environment, "TORCHELASTIC_USE_AGENT_STORE");
  return value == "True" || value == "true" || value == "1";
}

}  // namespace

TcpGroup tcp_group(const LaunchedAs& launched, const Environment& environment) {
  require(launched.rank >= 0 && launched.rank < launched.size,
          "RANK={}: expected 0 to {}, as WORLD_SIZE is {}", launched.rank, launched.size - 1,
          launched.size);
  TcpGroup group{.rank = launched.rank, .size = launched.size, .port_origin = "MASTER_PORT"};
  group.host = required_in(environment, "MASTER_ADDR");
  group.port = port_in(environment);
  if (is_taken_by_torchrun(environment)) {
    require(group.port < 65535, "MASTER_PORT={}: winnow takes the next port, and there is none",
            group.port);
    ++group.port;
    group.port_origin = "MASTER_PORT + 1, as torchrun uses MASTER_PORT itself";
  }
  group.job = text_in(environment, "TORCHELASTIC_RUN_ID");
  group.one_machine = text_in(environment, "LOCAL_WORLD_SIZE") == std::to_string(launched.size);
  return group;
}

TcpGroup tcp_group(const LaunchedAs& launched) {
  return tcp_group(launched, [](const char* variable) { return std::getenv(variable); });
}

}  // namespace winnow::parallel
