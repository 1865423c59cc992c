// [TOOL_CALLS] [{"name": NAME, "arguments": {...}}, ...]
// (Mistral 7B v0.3, Nemo, Small up to 3.1, Large)
// [TOOL_CALLS]NAME[ARGS]{...}
// (Mistral Small 3.2, Devstral, Magistral)
#include <fmt/format.h>

#include "server/openai/tools/call_list_reader.h"
#include "server/openai/tools/formats.h"
#include "server/openai/tools/json_call_reader.h"
#include "server/openai/tools/marked_call_reader.h"

namespace winnow::server {
namespace {

constexpr std::string_view kCalls = "[TOOL_CALLS]";

// The part of a rendered text after the mark of calls and white space.
std::string_view behind_mark(std::string_view rendered) {
  const auto mark = rendered.find(kCalls);
  if (mark == std::string_view::npos) {
    return {};
  }
  const auto begin = rendered.find_first_not_of(' ', mark + kCalls.size());
  return begin == std::string_view::npos ? std::string_view() : rendered.substr(begin);
}

class MistralJsonFormat : public ToolFormat {
 public:
  std::string_view name() const override { return "mistral_json"; }
  std::string_view begin() const override { return kCalls; }
  std::vector<std::string> marks() const override { return {std::string(kCalls)}; }
  std::unique_ptr<ToolCallReader> reader(const ToolRequest& /*tools*/) const override {
    return std::make_unique<CallListReader>(
        std::vector<std::string>{std::string(kCalls), "["}, ",", "]",
        [] { return std::make_unique<JsonCallReader>("", ""); });
  }
  grammar::ExpressionPtr call(const Tool& tool, grammar::RuleSet& rules) const override {
    return grammar::sequence(
        {grammar::bytes(fmt::format("{{\"name\": \"{}\", \"arguments\": ", tool.name)),
         json_arguments(tool, rules), grammar::bytes("}")});
  }
  std::string_view opening() const override { return "[TOOL_CALLS] ["; }
  std::string_view between() const override { return ", "; }
  std::string_view closing() const override { return "]"; }
  bool wrote(std::string_view rendered, std::string_view name) const override {
    const std::string_view calls = behind_mark(rendered);
    return calls.starts_with('[') && calls.find(name) != std::string_view::npos;
  }
  bool has_short_ids() const override { return true; }
};

class MistralFormat : public ToolFormat {
 public:
  std::string_view name() const override { return "mistral"; }
  std::string_view begin() const override { return kCalls; }
  std::vector<std::string> marks() const override {
    return {std::string(kCalls), "[ARGS]", "[CALL_ID]"};
  }
  std::unique_ptr<ToolCallReader> reader(const ToolRequest& /*tools*/) const override {
    return std::make_unique<MarkedCallReader>(kCalls, "[ARGS]", "", "[CALL_ID]");
  }
  grammar::ExpressionPtr call(const Tool& tool, grammar::RuleSet& rules) const override {
    return grammar::sequence({grammar::bytes(fmt::format("{}{}[ARGS]", kCalls, tool.name)),
                              json_arguments(tool, rules)});
  }
  std::string_view between() const override { return {}; }
  bool wrote(std::string_view rendered, std::string_view name) const override {
    return behind_mark(rendered).starts_with(name) &&
           rendered.find("[ARGS]") != std::string_view::npos;
  }
  bool has_short_ids() const override { return true; }
};

}  // namespace

const ToolFormat& mistral_json_format() {
  static const MistralJsonFormat format;
  return format;
}

const ToolFormat& mistral_format() {
  static const MistralFormat format;
  return format;
}

}  // namespace winnow::server
