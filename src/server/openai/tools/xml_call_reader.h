// Reads calls written as tags: <function=NAME>, <parameter=KEY>.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/tools/tool_format.h"

namespace winnow::server {

/// Reports each argument when it is whole.
class XmlCallReader : public ToolCallReader {
 public:
  explicit XmlCallReader(const ToolRequest& tools) : tools_(&tools) {}

  bool read(std::string& text, std::vector<ToolDelta>& deltas) override;
  [[nodiscard]] bool ended() const override { return place_ == Place::over; }

 private:
  enum class Place : std::uint8_t { head, arguments, tail, over };

  bool read_head(std::string& text, std::vector<ToolDelta>& deltas);
  bool read_argument(std::string& text, std::vector<ToolDelta>& deltas);

  const ToolRequest* tools_;
  const Tool* tool_ = nullptr;  // null: a tool that was not offered
  Place place_ = Place::head;
  int arguments_ = 0;  // reported so far
};

}  // namespace winnow::server
