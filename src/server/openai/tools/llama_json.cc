// {"name": NAME, "parameters": {...}}, the whole answer (Llama 3.1 to 3.3)
#include <fmt/format.h>

#include "server/openai/tools/formats.h"
#include "server/openai/tools/json_call_reader.h"

namespace winnow::server {
namespace {

class LlamaJsonFormat : public ToolFormat {
 public:
  std::string_view name() const override { return "llama3_json"; }
  std::string_view begin() const override { return "{\"name\""; }
  std::unique_ptr<ToolCallReader> reader(const ToolRequest& /*tools*/) const override {
    return std::make_unique<JsonCallReader>("", "");
  }
  grammar::ExpressionPtr call(const Tool& tool, grammar::RuleSet& rules) const override {
    return grammar::sequence(
        {grammar::bytes(fmt::format("{{\"name\": \"{}\", \"parameters\": ", tool.name)),
         json_arguments(tool, rules), grammar::bytes("}")});
  }
  std::string_view between() const override { return "; "; }
  bool wrote(std::string_view rendered, std::string_view name) const override {
    return rendered.find(fmt::format("{{\"name\": \"{}\", \"parameters\":", name)) !=
           std::string_view::npos;
  }
};

}  // namespace

const ToolFormat& llama_json_format() {
  static const LlamaJsonFormat format;
  return format;
}

}  // namespace winnow::server
