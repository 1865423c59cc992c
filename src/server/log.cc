#include "server/log.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "server/http/api_error.h"

namespace winnow::server {
namespace {

constexpr std::array<std::string_view, 4> kNames{"error", "warn", "info", "debug"};

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
  std::fwrite(text.data(), 1, text.size(), file_);
  std::fflush(file_);
}

}  // namespace winnow::server
