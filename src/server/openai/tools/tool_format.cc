#include "server/openai/tools/tool_format.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/error.h"
#include "checkpoint/json_text.h"
#include "grammar/json_schema.h"
#include "grammar/regular.h"
#include "server/openai/tools/formats.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;
using grammar::ExpressionPtr;

std::array<const ToolFormat*, 9> tool_formats() {
  return {&hermes_format(),      &qwen3_coder_format(),  &llama_json_format(),
          &pythonic_format(),    &mistral_json_format(), &mistral_format(),
          &deepseek_v3_format(), &deepseek_format(),     &harmony_format()};
}

}  // namespace

ExpressionPtr text_without(std::string_view mark) {
  using grammar::Regular;
  const auto anything = grammar::repeat(grammar::characters(grammar::all_code_points()), 0, -1);
  const auto with =
      Regular::of(*grammar::sequence({anything, grammar::bytes(std::string(mark)), anything}));
  return grammar::regular(Regular::difference(*Regular::of(*anything), *with),
                          grammar::Spelling::plain);
}

ExpressionPtr json_arguments(const Tool& tool, grammar::RuleSet& rules) {
  try {
    return grammar::reference(rules.embed(tool.parameters.is_null()
                                              ? grammar::json_object_rules()
                                              : grammar::json_schema_rules(tool.parameters)));
  } catch (const Error& error) {
    fail("parameters of {}: {}", tool.name, error.what());
  }
}

const ToolFormat* find_tool_format(std::string_view name) {
  for (const ToolFormat* format : tool_formats()) {
    if (format->name() == name) {
      return format;
    }
  }
  return nullptr;
}

std::string tool_format_names() {
  std::string names;
  for (const ToolFormat* format : tool_formats()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", format->name());
  }
  return names;
}

const ToolFormat* tool_format_of(const ChatTemplate& chat) {
  const std::string name = "winnow_probe";
  const Json call{{"id", "call00000"},
                  {"type", "function"},
                  {"function", {{"name", name}, {"arguments", {{"key", "value"}}}}}};
  const Json messages{{{"role", "user"}, {"content", "a"}},
                      {{"role", "assistant"}, {"content", ""}, {"tool_calls", {call}}}};
  std::string rendered;
  try {
    rendered = chat.render(messages, /*add_generation_prompt=*/false);
  } catch (const Error&) {
    return nullptr;  // it renders no calls, or only together with other messages
  }
  for (const ToolFormat* format : tool_formats()) {
    if (format->wrote(rendered, name)) {
      return format;
    }
  }
  return nullptr;
}

grammar::RuleSet tool_rules(const ToolFormat& format, const ToolRequest& request) {
  grammar::RuleSet rules;
  std::vector<ExpressionPtr> calls;
  for (const Tool& tool : request.tools) {
    if (request.choice != ToolRequest::Choice::named || tool.name == request.named) {
      calls.push_back(format.call(tool, rules));
    }
  }
  const ExpressionPtr call = grammar::reference(rules.add("call", grammar::choice(calls)));
  const bool one = !request.parallel || request.choice == ToolRequest::Choice::named ||
                   format.ends_with_a_call();
  const ExpressionPtr more =
      grammar::sequence({grammar::bytes(std::string(format.between())), call});
  const ExpressionPtr all = grammar::sequence({grammar::bytes(std::string(format.opening())), call,
                                               grammar::repeat(more, 0, one ? 0 : -1),
                                               grammar::bytes(std::string(format.closing()))});
  rules.root = rules.add(
      "root", request.must_call()
                  ? all
                  : grammar::sequence({text_without(format.begin()), grammar::optional(all)}));
  return rules;
}

std::string tool_instructions(const ToolRequest& request) {
  std::string text =
      "You may call one or more of these functions to assist with the user query. They are given "
      "within <tools></tools> as JSON:\n<tools>\n";
  for (const Json& tool : request.described) {
    text += json_text(tool) + "\n";
  }
  return text +
         "</tools>\n\nFor each call return a JSON object with the function's name and arguments "
         "within <tool_call></tool_call>:\n<tool_call>\n{\"name\": NAME, \"arguments\": "
         "OBJECT}\n</tool_call>";
}

}  // namespace winnow::server
