// The server's log: one JSON object per line.
#pragma once

#include <cstdint>
#include <cstdio>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace winnow::server {

enum class LogLevel : std::uint8_t { error, warn, info, debug };

/// "error", "warn", "info" or "debug"; Error for anything else.
LogLevel parse_log_level(std::string_view name);

/// May be used from many threads. Lines look like
/// {"time":"2026-01-31T12:00:00.123Z","level":"info","event":"request","id":"req-...", ...}
class Log {
 public:
  explicit Log(LogLevel level, std::FILE* file = stderr) : level_(level), file_(file) {}

  [[nodiscard]] bool takes(LogLevel level) const { return level <= level_; }
  void write(LogLevel level, std::string_view event, const nlohmann::ordered_json& fields);

 private:
  LogLevel level_;
  std::FILE* file_;
  std::mutex mutex_;
};

}  // namespace winnow::server
