// <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
// (gpt-oss)
#include <fmt/format.h>

#include "server/openai/tools/formats.h"
#include "server/openai/tools/marked_call_reader.h"

namespace winnow::server {
namespace {

// Reads calls in HarmonyParser's output: to=functions.NAME<|message|>{...}<|call|>.
class HarmonyFormat : public ToolFormat {
 public:
  std::string_view name() const override { return "harmony"; }
  std::string_view begin() const override { return " to=functions."; }
  std::vector<std::string> marks() const override {
    return {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>"};
  }
  std::unique_ptr<ToolCallReader> reader(const ToolRequest& /*tools*/) const override {
    return std::make_unique<MarkedCallReader>("to=functions.", "<|message|>", "<|call|>", "<|");
  }
  grammar::ExpressionPtr call(const Tool& tool, grammar::RuleSet& rules) const override {
    return grammar::sequence(
        {grammar::bytes(fmt::format("{}{} <|constrain|>json<|message|>", begin(), tool.name)),
         json_arguments(tool, rules)});
  }
  std::string_view opening() const override { return "<|channel|>commentary"; }
  std::string_view between() const override { return "<|call|>"; }
  bool ends_with_a_call() const override { return true; }
  bool wrote(std::string_view rendered, std::string_view name) const override {
    return rendered.find(fmt::format("to=functions.{}", name)) != std::string_view::npos;
  }
};

}  // namespace

const ToolFormat& harmony_format() {
  static const HarmonyFormat format;
  return format;
}

}  // namespace winnow::server
