// Splits an answer's text into content and tool calls while it arrives.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/tools/tool_format.h"

namespace winnow::server {

class ToolParser {
 public:
  struct Part {
    std::string content;            // text that is no call
    std::vector<ToolDelta> deltas;  // of calls, in order
    [[nodiscard]] bool empty() const { return content.empty() && deltas.empty(); }
  };

  /// `format` and `tools` must outlive this.
  ToolParser(const ToolFormat& format, const ToolRequest& tools)
      : format_(&format), tools_(&tools) {}

  /// Returns the parts that became final with `text`.
  Part push(std::string_view text);
  /// Returns the parts that were held back; call it at the end.
  Part finish();
  /// Calls that have begun.
  [[nodiscard]] int calls() const { return calls_; }

 private:
  void read(Part& part);

  const ToolFormat* format_;
  const ToolRequest* tools_;
  std::string pending_;
  std::unique_ptr<ToolCallReader> reader_;  // of the current call, if there is one
  int calls_ = 0;
};

}  // namespace winnow::server
