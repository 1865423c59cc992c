// Reads calls that are JSON objects with a name and arguments.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/tools/object_scanner.h"
#include "server/openai/tools/tool_format.h"

namespace winnow::server {

/// {"name": NAME, "arguments" or "parameters": {...}}, reported incrementally if in this order.
class JsonCallReader : public ToolCallReader {
 public:
  /// `begin` and `end`: the marks around the object; each may be empty.
  JsonCallReader(std::string_view begin, std::string_view end) : begin_(begin), end_(end) {}

  bool read(std::string& text, std::vector<ToolDelta>& deltas) override;
  [[nodiscard]] bool ended() const override { return place_ == Place::over; }

 private:
  enum class Place : std::uint8_t { head, arguments, brace, tail, over };

  bool read_head(std::string& text, std::vector<ToolDelta>& deltas);
  void read_arguments(std::string& text, std::vector<ToolDelta>& deltas);

  std::string begin_;
  std::string end_;
  Place place_ = Place::head;
  ObjectScanner scanner_;  // of the arguments
};

}  // namespace winnow::server
