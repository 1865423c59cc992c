// <tool_call>
// <function=NAME>
// <parameter=KEY>
// VALUE
// </parameter>
// </function>
// </tool_call>
// (Qwen3-Coder: a string is written as it is, anything else as JSON)
#include <fmt/format.h>

#include "server/openai/tools/formats.h"
#include "server/openai/tools/xml_arguments.h"
#include "server/openai/tools/xml_call_reader.h"

namespace winnow::server {
namespace {

class Qwen3CoderFormat : public ToolFormat {
 public:
  std::string_view name() const override { return "qwen3_coder"; }
  std::string_view begin() const override { return "<tool_call>"; }
  std::unique_ptr<ToolCallReader> reader(const ToolRequest& tools) const override {
    return std::make_unique<XmlCallReader>(tools);
  }
  grammar::ExpressionPtr call(const Tool& tool, grammar::RuleSet& rules) const override {
    return grammar::sequence(
        {grammar::bytes(fmt::format("<tool_call>\n<function={}>\n", tool.name)),
         xml_arguments(tool, rules), grammar::bytes("</function>\n</tool_call>")});
  }
  std::string_view between() const override { return "\n"; }
  bool wrote(std::string_view rendered, std::string_view name) const override {
    return rendered.find(fmt::format("<function={}>", name)) != std::string_view::npos &&
           rendered.find("<parameter=key>") != std::string_view::npos;
  }
};

}  // namespace

const ToolFormat& qwen3_coder_format() {
  static const Qwen3CoderFormat format;
  return format;
}

}  // namespace winnow::server
