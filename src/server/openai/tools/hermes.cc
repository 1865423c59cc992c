// <tool_call>
// {"name": NAME, "arguments": {...}}
// </tool_call>
// (Qwen 2.5 and 3, Hermes 2 and 3)
#include <fmt/format.h>

#include "server/openai/tools/formats.h"
#include "server/openai/tools/json_call_reader.h"

namespace winnow::server {
namespace {

class HermesFormat : public ToolFormat {
 public:
  std::string_view name() const override { return "hermes"; }
  std::string_view begin() const override { return "<tool_call>"; }
  std::unique_ptr<ToolCallReader> reader(const ToolRequest& /*tools*/) const override {
    return std::make_unique<JsonCallReader>("<tool_call>", "</tool_call>");
  }
  grammar::ExpressionPtr call(const Tool& tool, grammar::RuleSet& rules) const override {
    return grammar::sequence(
        {grammar::bytes(fmt::format("<tool_call>\n{{\"name\": \"{}\", \"arguments\": ", tool.name)),
         json_arguments(tool, rules), grammar::bytes("}\n</tool_call>")});
  }
  std::string_view between() const override { return "\n"; }
  bool wrote(std::string_view rendered, std::string_view name) const override {
    const auto mark = rendered.find("<tool_call>");
    return mark != std::string_view::npos &&
           rendered.substr(mark).find(fmt::format("\"name\": \"{}\"", name)) !=
               std::string_view::npos;
  }
};

}  // namespace

const ToolFormat& hermes_format() {
  static const HermesFormat format;
  return format;
}

}  // namespace winnow::server
