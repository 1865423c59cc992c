// The server's log: one JSON object per line.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace winnow::server {

enum class LogLevel : std::uint8_t { error, warn, info, debug };

/// "error", "warn", "info" or "debug"; Error for anything else.
LogLevel parse_log_level(std::string_view name);

/// May be used from many threads. Lines look like
/// {"time":"2026-01-31T12:00:00.123Z","level":"info","event":"request","id":"req-...", ...}
/// A reader of the log that stops reading must not stop the server: lines that a pipe has no room
/// for are dropped, and counted.
class Log {
 public:
  explicit Log(LogLevel level, std::FILE* file = stderr) : level_(level), file_(file) {}

  [[nodiscard]] bool takes(LogLevel level) const { return level <= level_; }
  void write(LogLevel level, std::string_view event, const nlohmann::ordered_json& fields);
  /// Lines that were dropped so far.
  [[nodiscard]] std::int64_t dropped() const { return dropped_; }

 private:
  void send(std::string& line);
  [[nodiscard]] bool has_room() const;

  LogLevel level_;
  std::FILE* file_;
  std::atomic<std::int64_t> dropped_ = 0;
  std::mutex mutex_;        // of the file and the members below
  bool is_full_ = false;    // there was no room for the last line
  std::string unfinished_;  // the rest of a line that has begun
};

}  // namespace winnow::server
