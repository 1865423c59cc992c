#include "server/openai/tools/tool_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "grammar/automaton.h"
#include "grammar/grammar.h"
#include "server/openai/tools/tool_prompt.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

/// What a parser makes of a text that comes in pieces of `size` bytes:
/// "content|name(arguments)...".
std::string parsed(const char* format, std::string_view text, std::size_t size) {
  ToolParser parser(*find_tool_format(format));
  std::string content;
  std::string calls;
  const auto take = [&](const ToolParser::Part& part) {
    content += part.content;
    for (const ToolDelta& delta : part.deltas) {
      calls += (delta.name.empty() ? "" : "|" + delta.name) + delta.arguments;
    }
  };
  for (std::size_t at = 0; at < text.size(); at += size) {
    take(parser.push(text.substr(at, size)));
  }
  take(parser.finish());
  return content + calls;
}

void expect_parsed(const char* format, std::string_view text, const std::string& expected) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{2}, std::size_t{7}, text.size()}) {
    EXPECT_EQ(parsed(format, text, size), expected) << text << " in pieces of " << size;
  }
}

TEST(ToolParser, Hermes) {
  expect_parsed("hermes", "Just text.", "Just text.");
  expect_parsed("hermes",
                "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\"]}}\n"
                "</tool_call>",
                "|f{\"a\": [1, \"}\"]}");
  expect_parsed("hermes",
                "Let me see.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n"
                "<tool_call>{\"name\":\"g\",\"arguments\":{\"x\":\"\\\"{\"}}</tool_call>",
                "Let me see.\n|f{}|g{\"x\":\"\\\"{\"}");
  expect_parsed("hermes", "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>",
                "|f{\"a\":1}");
  expect_parsed("hermes", "<tool_call>no call</tool_call>", "<tool_call>no call</tool_call>");
  expect_parsed("hermes", "a < b <tool", "a < b <tool");
}

TEST(ToolParser, LlamaJson) {
  expect_parsed("llama3_json", "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "|f{\"a\": 1}");
  expect_parsed("llama3_json",
                "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
                "|f{}|g{}");
  expect_parsed("llama3_json", "{\"names\": 1}", "{\"names\": 1}");
}

ToolRequest weather(ToolRequest::Choice choice) {
  ToolRequest request;
  request.choice = choice;
  request.tools.push_back({"weather", Json::parse(R"({"type": "object", "properties": {"city":
                               {"enum": ["Rome", "Oslo"]}}, "required": ["city"]})")});
  request.tools.push_back({"now", nullptr});
  request.described = Json::array({{{"type", "function"}}});
  return request;
}

bool fits(const ToolFormat& format, const ToolRequest& request, std::string_view text) {
  const grammar::Grammar grammar = grammar::compile(tool_rules(format, request));
  grammar::Automaton automaton(grammar);
  auto state = automaton.start();
  for (const char byte : text) {
    state = state == grammar::Automaton::kDead
                ? state
                : automaton.step(state, static_cast<std::uint8_t>(byte));
  }
  return state != grammar::Automaton::kDead && automaton.ends(state);
}

TEST(ToolRules, HoldAnswersToCalls) {
  const std::string rome =
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>";
  const std::string now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const std::string nice =
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Nice\"}}\n</tool_call>";
  const ToolFormat& hermes = *find_tool_format("hermes");
  using Choice = ToolRequest::Choice;
  EXPECT_TRUE(fits(hermes, weather(Choice::required), rome));
  EXPECT_TRUE(fits(hermes, weather(Choice::required), rome + "\n" + now));
  EXPECT_FALSE(fits(hermes, weather(Choice::required), nice));
  EXPECT_FALSE(fits(hermes, weather(Choice::required), "Hi"));
  ToolRequest one = weather(Choice::required);
  one.parallel = false;
  EXPECT_FALSE(fits(hermes, one, rome + "\n" + now));
  ToolRequest named = weather(Choice::named);
  named.named = "now";
  EXPECT_TRUE(fits(hermes, named, now));
  EXPECT_FALSE(fits(hermes, named, rome));
  EXPECT_TRUE(fits(hermes, weather(Choice::automatic), "Hi <b>"));
  EXPECT_TRUE(fits(hermes, weather(Choice::automatic), "Well.\n" + rome));
  EXPECT_FALSE(fits(hermes, weather(Choice::automatic), nice));
  EXPECT_TRUE(fits(*find_tool_format("llama3_json"), weather(Choice::required),
                   "{\"name\": \"now\", \"parameters\": {}}"));
}

TEST(ToolPrompt, AFormatIsKnownByHowATemplateShowsCalls) {
  const ChatTemplate qwen(
      "{% for m in messages %}{{m.content}}{% for c in m.tool_calls or [] "
      "%}<tool_call>\n{\"name\": "
      "\"{{c.function.name}}\", \"arguments\": {{c.function.arguments|tojson}}}\n</tool_call>"
      "{% endfor %}{% endfor %}");
  ASSERT_NE(tool_format_of(qwen), nullptr);
  EXPECT_EQ(tool_format_of(qwen)->name(), "hermes");
  const ChatTemplate plain("{% for m in messages %}[{{m.content}}]{% endfor %}");
  EXPECT_EQ(tool_format_of(plain), nullptr);
}

TEST(ToolPrompt, WhatATemplateHasNoPlaceForIsPutIntoTexts) {
  const ChatTemplate plain("{% for m in messages %}[{{m.role}}:{{m.content}}]{% endfor %}");
  ChatPrompt prompt;
  prompt.tools = weather(ToolRequest::Choice::automatic);
  prompt.conversation.messages = Json::parse(R"([{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "now",
       "arguments": {"z": 1}}}]}])");
  const ChatPrompt shown = with_tools_shown(plain, prompt);
  const std::string text = plain.render(shown.conversation.messages, false, shown.variables);
  EXPECT_THAT(text, HasSubstr("[system:You may call"));
  EXPECT_THAT(text, HasSubstr("<tool_call>\n{\"name\":\"now\",\"arguments\":{\"z\":1}}"));
  const ChatTemplate knows(
      "{{tools}}{% for m in messages %}[{{m.role}}:{{m.content}}{{m.tool_calls}}]{% endfor %}");
  EXPECT_EQ(with_tools_shown(knows, prompt).conversation.messages, prompt.conversation.messages);
}

}  // namespace
}  // namespace winnow::server
