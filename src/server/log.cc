#include "server/log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "server/http/api_error.h"

namespace winnow::server {
namespace {

constexpr std::array<std::string_view, 4> kNames{"error", "warn", "info", "debug"};
constexpr int kPatienceMs = 20;

std::string now() {
  const auto time = std::chrono::system_clock::now();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(time - seconds).count();
  const std::time_t clock = std::chrono::system_clock::to_time_t(seconds);
  std::tm parts = {};
  ::gmtime_r(&clock, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     milliseconds);
}

}  // namespace

LogLevel parse_log_level(std::string_view name) {
  const auto* found = std::ranges::find(kNames, name);
  require(found != kNames.end(), "--log-level {}: expected error, warn, info or debug", name);
  return static_cast<LogLevel>(found - kNames.begin());
}

void Log::write(LogLevel level, std::string_view event, const nlohmann::ordered_json& fields) {
  if (!takes(level)) {
    return;
  }
  nlohmann::ordered_json line{
      {"time", now()}, {"level", kNames[static_cast<std::size_t>(level)]}, {"event", event}};
  line.update(fields);
  const std::string text = dump(line) + "\n";
  const std::lock_guard lock(mutex_);
  send(unfinished_);  // of an earlier line
  if (unfinished_.empty()) {
    unfinished_ = text;
    send(unfinished_);
    if (unfinished_.size() < text.size()) {
      return;
    }
    unfinished_.clear();
  }
  ++dropped_;
}

// Writes and removes as much of a line as there is room for.
void Log::send(std::string& line) {
  std::size_t sent = 0;
  while (sent < line.size() && has_room()) {
    // A pipe that can be written to takes this much at once (POSIX, PIPE_BUF).
    const std::size_t piece = std::min<std::size_t>(line.size() - sent, PIPE_BUF);
    const ssize_t written = ::write(::fileno(file_), line.data() + sent, piece);
    if (written < 0 && errno != EINTR) {
      break;
    }
    sent += static_cast<std::size_t>(std::max<ssize_t>(written, 0));
  }
  line.erase(0, sent);
  is_full_ = !line.empty();
}

// Waits a moment for a reader that is only slow.
bool Log::has_room() const {
  pollfd file{.fd = ::fileno(file_), .events = POLLOUT, .revents = 0};
  return ::poll(&file, 1, is_full_ ? 0 : kPatienceMs) > 0;
}

}  // namespace winnow::server
