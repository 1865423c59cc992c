#include "server/openai/tools/tool_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "grammar/automaton.h"
#include "grammar/grammar.h"
#include "server/openai/tools/tool_prompt.h"
#include "server/openai/tools/xml_arguments.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

ToolRequest weather(ToolRequest::Choice choice) {
  ToolRequest request;
  request.choice = choice;
  request.tools.push_back({"weather", Json::parse(R"({"type": "object", "properties": {"city":
                               {"type": "string", "enum": ["Rome", "Oslo"]},
                               "zip": {"type": "string"}, "days": {"type": "integer"}},
                               "required": ["city"]})")});
  request.tools.push_back({"now", nullptr});
  request.described = Json::array({{{"type", "function"}}});
  return request;
}

/// The parser's output for a text that arrives in pieces of `size` bytes:
/// "content|name(arguments)...".
std::string parsed(const char* format, std::string_view text, std::size_t size,
                   ToolRequest::Choice choice = ToolRequest::Choice::automatic) {
  const ToolRequest tools = weather(choice);
  ToolParser parser(*find_tool_format(format), tools);
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

TEST(ToolParser, ATextThatEndsLikeACallIsText) {
  for (const auto& [format, text] :
       {std::pair{"hermes", "see <tool_call>"}, std::pair{"hermes", "<tool_call>\n{\"name\": \"f"},
        std::pair{"pythonic", "see [f"}, std::pair{"pythonic", "an empty list: [] it is"},
        std::pair{"pythonic", "[f(a="}, std::pair{"mistral_json", "[TOOL_CALLS] [{\"na"},
        std::pair{"mistral", "[TOOL_CALLS]f[AR"}, std::pair{"qwen3_coder", "<tool_call>\n<func"},
        std::pair{"deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f"}}) {
    expect_parsed(format, text, text);
  }
}

TEST(ToolParser, LlamaJson) {
  expect_parsed("llama3_json", "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "|f{\"a\": 1}");
  expect_parsed("llama3_json",
                "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
                "|f{}|g{}");
  expect_parsed("llama3_json", "{\"names\": 1}", "{\"names\": 1}");
}

TEST(ToolParser, Qwen3Coder) {
  expect_parsed("qwen3_coder",
                "I look.\n<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n"
                "<parameter=days>\n[1, 2]\n</parameter>\n</function>\n</tool_call>",
                "I look.\n|weather{\"city\": \"Rome\", \"days\": [1,2]}");
  expect_parsed("qwen3_coder",
                "<tool_call>\n<function=now>\n</function>\n</tool_call>\n"
                "<tool_call>\n<function=say>\n<parameter=text>\na\n\"b\"\n</parameter>\n"
                "<parameter=loud>\nTrue\n</parameter>\n</function>\n</tool_call>",
                "|now{}|say{\"text\": \"a\\n\\\"b\\\"\", \"loud\": true}");
  expect_parsed("qwen3_coder", "<tool_call> is a mark", "<tool_call> is a mark");
}

TEST(ToolParser, ATextOfAStringIsNoNumber) {
  const ToolRequest tools = weather(ToolRequest::Choice::automatic);
  EXPECT_EQ(xml_value(&tools.tools[0], "zip", "01234"), "01234");
  EXPECT_EQ(xml_value(&tools.tools[0], "days", "12"), 12);
  EXPECT_EQ(xml_value(nullptr, "days", "twelve"), "twelve");
}

TEST(ToolParser, Pythonic) {
  expect_parsed("pythonic", "[weather(city='Rome', days=[1, 2.5], exact=True, at=None)]",
                "|weather{\"city\":\"Rome\",\"days\":[1,2.5],\"exact\":true,\"at\":null}");
  expect_parsed("pythonic", "[now(), say(text=\"a\\n'b' \\u00e9\", how={'x': (1,)})]",
                "|now{}|say{\"text\":\"a\\n'b' \u00e9\",\"how\":{\"x\":[1]}}");
  expect_parsed("pythonic", "[1] says so, [f] too, and [f(x)]", "[1] says so, [f] too, and [f(x)]");
}

TEST(ToolParser, Mistral) {
  expect_parsed("mistral_json",
                "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"9\"}, "
                "{\"name\": \"g\", \"arguments\": {}}]",
                "|f{\"a\": 1}|g{}");
  expect_parsed("mistral_json", "[TOOL_CALLS] none", "[TOOL_CALLS] none");
  expect_parsed("mistral", "[TOOL_CALLS]f[ARGS]{\"a\": \"}\"}[TOOL_CALLS]g[CALL_ID]9[ARGS]{}",
                "|f{\"a\": \"}\"}|g{}");
}

TEST(ToolParser, DeepSeek) {
  expect_parsed("deepseek_v3",
                "Well.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
                "{\"a\": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n"
                "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
                "Well.|f{\"a\": 1}|g{}");
  expect_parsed("deepseek_v31",
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}"
                "<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
                "<｜tool▁calls▁end｜>",
                "|f{\"a\": 1}|g{}");
}

TEST(ToolParser, Harmony) {
  expect_parsed("harmony", "Well. to=functions.f<|message|>{\"a\": 1}<|call|>",
                "Well.|f{\"a\": 1}");
  expect_parsed("harmony", " to=functions.f<|message|>{\"a\": 1}<|cal", "|f{\"a\": 1}");
  expect_parsed("harmony", " to=functions.f <|constrain|>json<|message|>{}<|call|>", "|f{}");
  expect_parsed("harmony", "write to=functions. and so on", "write to=functions. and so on");
}

/// Two calls, weather() in Rome and now(), in each format.
const std::pair<const char*, std::string> kTwoCalls[] = {
    {"hermes",
     "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>\n"
     "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"},
    {"llama3_json",
     "{\"name\": \"weather\", \"parameters\": {\"city\": \"Rome\"}}; "
     "{\"name\": \"now\", \"parameters\": {}}"},
    {"qwen3_coder",
     "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n"
     "</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>"},
    {"pythonic", "[weather(city=\"Rome\"), now()]"},
    {"mistral_json",
     "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}, "
     "{\"name\": \"now\", \"arguments\": {}}]"},
    {"mistral", "[TOOL_CALLS]weather[ARGS]{\"city\": \"Rome\"}[TOOL_CALLS]now[ARGS]{}"},
    {"deepseek_v3",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{"
     "\"city\": "
     "\"Rome\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```"
     "json\n{}\n"
     "```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {"deepseek_v31",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Rome\"}"
     "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><"
     "｜tool▁calls▁end｜>"}};

/// Wherever max_tokens cuts an answer that must be a call, its client sees no part of a mark.
TEST(ToolParser, ACutCallLeavesNoMarkInTheContent) {
  const auto has_content = [](const std::string& parts) { return parts.find('|') > 0; };
  for (const auto& [format, text] : kTwoCalls) {
    const std::size_t second = text.find("now");
    for (std::size_t length = 1; length <= text.size(); ++length) {
      const std::string cut = text.substr(0, length);
      for (const std::size_t size : {std::size_t{1}, length}) {
        const std::string parts = parsed(format, cut, size, ToolRequest::Choice::required);
        EXPECT_FALSE(!parts.empty() && has_content(parts))
            << format << ": " << cut << ": " << parts;
        const std::string called = parsed(format, cut, size);
        EXPECT_FALSE(length >= second && has_content(called)) << format << ": " << cut;
      }
    }
  }
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

TEST(ToolRules, AHarmonyAnswerEndsWithItsCall) {
  using Choice = ToolRequest::Choice;
  const ToolFormat& harmony = *find_tool_format("harmony");
  const std::string rome =
      "<|channel|>commentary to=functions.weather <|constrain|>json"
      "<|message|>{\"city\": \"Rome\"}";
  const std::string text = "<|channel|>final<|message|>It is fine.";
  EXPECT_TRUE(fits(harmony, weather(Choice::required), rome));
  EXPECT_FALSE(fits(harmony, weather(Choice::required), rome + "<|call|>" + rome));
  EXPECT_FALSE(fits(harmony, weather(Choice::required), text));
  EXPECT_TRUE(fits(harmony, weather(Choice::automatic), text));
  EXPECT_TRUE(fits(harmony, weather(Choice::automatic), rome));
  EXPECT_FALSE(fits(harmony, weather(Choice::automatic),
                    " to=functions.weather<|channel|>commentary json<|message|>{}"));
}

/// The parser reads what the grammar allows: for calls of each format.
TEST(ToolRules, EachFormatHoldsToWhatItReads) {
  using Choice = ToolRequest::Choice;
  for (const auto& [name, text] : kTwoCalls) {
    const ToolFormat& format = *find_tool_format(name);
    EXPECT_TRUE(fits(format, weather(Choice::required), text)) << name;
    EXPECT_FALSE(fits(format, weather(Choice::required), "Hi")) << name;
    std::string nice = text;
    nice.replace(nice.find("Rome"), 4, "Nice");
    EXPECT_FALSE(fits(format, weather(Choice::required), nice)) << name;
    EXPECT_TRUE(fits(format, weather(Choice::automatic), "Well. ")) << name;
    const std::string read = parsed(name, text, text.size());
    EXPECT_TRUE(read == "|weather{\"city\": \"Rome\"}|now{}" ||
                read == "|weather{\"city\":\"Rome\"}|now{}")
        << name << ": " << read;
  }
}

TEST(ToolRules, ArgumentsThatAreWrittenOneByOne) {
  ToolRequest request;
  request.choice = ToolRequest::Choice::required;
  request.tools.push_back({"f", Json::parse(R"({"type": "object", "properties": {
      "a": {"type": "string", "pattern": "^x+$", "maxLength": 3}, "b": {"type": "boolean"},
      "c": {"$ref": "#/$defs/n"}}, "required": ["b"], "$defs": {"n": {"type": "integer"}}})")});
  const ToolFormat& python = *find_tool_format("pythonic");
  EXPECT_TRUE(fits(python, request, "[f(b=True)]"));
  EXPECT_TRUE(fits(python, request, "[f(a=\"xx\", b=False, c=4)]"));
  EXPECT_FALSE(fits(python, request, "[f(a=\"xx\")]"));
  EXPECT_FALSE(fits(python, request, "[f(, b=True)]"));
  const ToolFormat& coder = *find_tool_format("qwen3_coder");
  const auto call = [](const std::string& arguments) {
    return "<tool_call>\n<function=f>\n" + arguments + "</function>\n</tool_call>";
  };
  const std::string b = "<parameter=b>\ntrue\n</parameter>\n";
  EXPECT_TRUE(fits(coder, request, call(b)));
  EXPECT_TRUE(fits(coder, request, call("<parameter=a>\nxxx\n</parameter>\n" + b)));
  EXPECT_FALSE(fits(coder, request, call("<parameter=a>\nxxxx\n</parameter>\n" + b)));
  EXPECT_FALSE(fits(coder, request, call("")));
  request.tools[0].parameters["minProperties"] = 2;
  EXPECT_THROW(fits(coder, request, call(b)), Error);
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
  const std::pair<const char*, const char*> shown[] = {
      {"qwen3_coder",
       "<tool_call>\n<function={{f.name}}>\n{% for k, v in f.arguments|items %}<parameter={{k}}>\n"
       "{{v}}\n</parameter>\n{% endfor %}</function>\n</tool_call>"},
      {"pythonic",
       "[{{f.name}}({% for k, v in f.arguments|items %}{{k}}={{v|tojson}}{% endfor %})]"},
      {"mistral_json",
       "[TOOL_CALLS][{\"name\": \"{{f.name}}\", \"arguments\": {{f.arguments|tojson}}, \"id\": "
       "\"{{c.id}}\"}]"},
      {"mistral", "[TOOL_CALLS]{{f.name}}[CALL_ID]{{c.id}}[ARGS]{{f.arguments|tojson}}"},
      {"deepseek_v3",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{{c.type}}<｜tool▁sep｜>{{f.name}}\n```json\n"
       "{{f.arguments|tojson}}\n```<｜tool▁call▁end｜>"},
      {"deepseek_v31",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{{f.name}}<｜tool▁sep｜>{{f.arguments|tojson}}"
       "<｜tool▁call▁end｜>"},
      {"harmony",
       "<|start|>assistant to=functions.{{f.name}}<|channel|>commentary json<|message|>"
       "{{f.arguments|tojson}}<|call|>"}};
  for (const auto& [name, call] : shown) {
    const ChatTemplate chat(
        std::string("{% for m in messages %}{{m.content}}{% for c in m.tool_calls "
                    "or [] %}{% set f = c.function %}") +
        call + "{% endfor %}{% endfor %}");
    const ToolFormat* format = tool_format_of(chat);
    ASSERT_NE(format, nullptr) << name;
    EXPECT_EQ(format->name(), name);
  }
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
