// An answer's text, taken apart into content and calls of tools while it comes.
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

  /// What became certain with `text`.
  Part push(std::string_view text);
  /// What was held back: no more is coming.
  Part finish();
  /// Calls that have begun.
  [[nodiscard]] int calls() const { return calls_; }

 private:
  void read(Part& part);

  const ToolFormat* format_;
  const ToolRequest* tools_;
  std::string pending_;
  std::unique_ptr<ToolCallReader> reader_;  // of the call that is read, if one is
  int calls_ = 0;
};

}  // namespace winnow::server
