// Reads calls whose name is between marks, before JSON arguments.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/tools/object_scanner.h"
#include "server/openai/tools/tool_format.h"

namespace winnow::server {

/// BEFORE name SEPARATOR {...} BEHIND, reported incrementally.
class MarkedCallReader : public ToolCallReader {
 public:
  /// A name is cut at `suffix`; "": it is not cut.
  MarkedCallReader(std::string_view before, std::string_view separator, std::string_view behind,
                   std::string_view suffix = {})
      : before_(before),
        separator_(separator),
        behind_(behind.substr(std::min(behind.size(), behind.find_first_not_of("\n")))),
        suffix_(suffix) {}

  bool read(std::string& text, std::vector<ToolDelta>& deltas) override;
  [[nodiscard]] bool ended() const override { return place_ == Place::over; }

 private:
  enum class Place : std::uint8_t { head, arguments, behind, over };

  bool read_head(std::string& text, std::vector<ToolDelta>& deltas);
  void read_arguments(std::string& text, std::vector<ToolDelta>& deltas);

  std::string before_;
  std::string separator_;
  std::string behind_;
  std::string suffix_;
  Place place_ = Place::head;
  ObjectScanner scanner_;  // of the arguments
};

}  // namespace winnow::server
