#include "tokenizer/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace winnow {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;

const ordered_json kHi = {{{"role", "user"}, {"content", "Hi"}}};

class ChatTemplateFiles : public ::testing::Test {
 protected:
  ChatTemplateFiles() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    directory_ =
        fs::path(::testing::TempDir()) / ("winnow_chat_template_" + std::string(test->name()));
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  ~ChatTemplateFiles() override { fs::remove_all(directory_); }

  void write(const char* name, const std::string& text) const {
    std::ofstream(directory_ / name, std::ios::binary) << text;
  }
  [[nodiscard]] std::string rendered() const {
    const auto loaded = ChatTemplate::load(directory_);
    return loaded ? loaded->render(kHi, true) : "no template";
  }
  [[nodiscard]] std::string error() const {
    try {
      return rendered();
    } catch (const Error& error) {
      return error.what();
    }
  }

  fs::path directory_;
};

TEST(ChatTemplate, KnowsWhatVariablesItNames) {
  const ChatTemplate chat("{% if think_on and x.documents %}{{ messages }}{% endif %}");
  for (const char* name : {"think_on", "documents", "messages"}) {
    EXPECT_TRUE(chat.names(name)) << name;
  }
  for (const char* name : {"think", "on", "document", "message", "think_on_"}) {
    EXPECT_FALSE(chat.names(name)) << name;
  }
}

TEST_F(ChatTemplateFiles, NoneWithoutFileOrEntry) {
  EXPECT_EQ(rendered(), "no template");
  write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_EQ(rendered(), "no template");
}

// special_tokens_map.json is older than added_tokens_decoder, which wins if both are there.
TEST_F(ChatTemplateFiles, SpecialTokensMayStandInTheirOwnFile) {
  write("special_tokens_map.json", R"({"bos_token": "<s>", "eos_token": {"content": "<own>"}})");
  write("tokenizer_config.json",
        R"({"eos_token": "</s>", "chat_template": "{{ bos_token }}{{ eos_token }}"})");
  EXPECT_EQ(rendered(), "<s><own>");
  write("tokenizer_config.json", R"({"eos_token": "</s>", "added_tokens_decoder": {},
                                     "chat_template": "{{ bos_token }}{{ eos_token }}"})");
  EXPECT_EQ(rendered(), "</s>");
}

TEST_F(ChatTemplateFiles, BindsTokensOfOtherNames) {
  write("tokenizer_config.json", R"({"extra_special_tokens": {"image_token": "<image>"},
    "video_token": {"__type": "AddedToken", "content": "<video>"}, "add_bos_token": true,
    "chat_template": "{{ image_token }}{{ video_token }}{{ add_bos_token is defined }}"})");
  EXPECT_EQ(rendered(), "<image><video>False");
}

TEST_F(ChatTemplateFiles, BindsTheSpecialTokens) {
  write("tokenizer_config.json", R"({
    "bos_token": {"content": "<s>", "special": true}, "eos_token": "</s>", "pad_token": null,
    "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}"})");
  EXPECT_EQ(rendered(), "<s>Hi</s>");
}

TEST_F(ChatTemplateFiles, TakesTheDefaultOfSeveral) {
  write("tokenizer_config.json", R"({"chat_template": [
    {"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]})");
  EXPECT_EQ(rendered(), "plain");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "x", "template": "tools"}]})");
  EXPECT_THAT(error(), HasSubstr("none of the chat templates is named \"default\", only \"x\""));
  write("tokenizer_config.json", R"({"chat_template": {"x": "tools", "default": "plain"}})");
  EXPECT_EQ(rendered(), "plain");
}

TEST_F(ChatTemplateFiles, ToolsTakeTheTemplateForThem) {
  const auto with_tools = [&](const ordered_json& tools) {
    return ChatTemplate::load(directory_)->render(kHi, true, {{"tools", tools}});
  };
  const ordered_json tools = {{{"type", "function"}}};
  write("tokenizer_config.json", R"({"chat_template": [
    {"name": "default", "template": "plain"},
    {"name": "tool_use", "template": "{{ tools | length }} tools"}]})");
  EXPECT_EQ(with_tools(tools), "1 tools");
  EXPECT_EQ(with_tools(ordered_json::array()), "0 tools");
  EXPECT_EQ(with_tools(nullptr), "plain");
  EXPECT_EQ(rendered(), "plain");
  write("chat_template.jinja", "own {{ tools is none }}");
  EXPECT_EQ(with_tools(tools), "own False") << "files of their own win over all of the entry";
  fs::create_directories(directory_ / "additional_chat_templates");
  write("additional_chat_templates/tool_use.jinja", "own tools");
  write("additional_chat_templates/README.md", "{% x %}");
  EXPECT_EQ(with_tools(tools), "own tools");
  EXPECT_EQ(rendered(), "own True");
}

TEST_F(ChatTemplateFiles, DocumentsTakeTheTemplateForThem) {
  write("tokenizer_config.json", R"({"chat_template": [
    {"name": "default", "template": "plain"},
    {"name": "tool_use", "template": "{{ tools | length }} tools"},
    {"name": "rag", "template": "{{ documents | length }} documents"}]})");
  const auto chat = ChatTemplate::load(directory_);
  const ordered_json documents = {{{"text", "a"}}};
  const ordered_json tools = {{{"type", "function"}}};
  EXPECT_EQ(chat->render(kHi, true, {{"documents", documents}}), "1 documents");
  EXPECT_EQ(chat->render(kHi, true, {{"documents", ordered_json::array()}}), "plain");
  EXPECT_EQ(chat->render(kHi, true, {{"documents", nullptr}}), "plain");
  EXPECT_EQ(chat->render(kHi, true, {{"documents", documents}, {"tools", tools}}), "1 tools");
}

TEST_F(ChatTemplateFiles, OnlyTheTemplateThatIsTakenNamesVariables) {
  write("tokenizer_config.json", R"({"chat_template": {
    "default": "{{ x }}", "tool_use": "{{ y }}", "other": "{{ z }}{{ documents }}"}})");
  const auto chat = ChatTemplate::load(directory_);
  const ordered_json with_tools = {{"tools", ordered_json::array()}};
  EXPECT_TRUE(chat->names("x"));
  EXPECT_FALSE(chat->names("y"));
  EXPECT_FALSE(chat->names("x", with_tools));
  EXPECT_TRUE(chat->names("y", with_tools));
  EXPECT_FALSE(chat->names("z"));
  EXPECT_FALSE(chat->names("documents", {{"documents", {"a"}}}));
  write("tokenizer_config.json", R"({"chat_template": {"other": "{{ z }}"}})");
  EXPECT_THROW((void)ChatTemplate::load(directory_)->names("z"), Error);
}

// A template that is not supported must not break text completion or other templates.
TEST_F(ChatTemplateFiles, ABrokenTemplateFailsWhenItIsRendered) {
  write("tokenizer_config.json",
        R"({"chat_template": {"default": "plain", "tool_use": "{% trans %}"}})");
  const auto loaded = ChatTemplate::load(directory_);
  EXPECT_EQ(loaded->render(kHi, true), "plain");
  try {
    (void)loaded->render(kHi, true, {{"tools", ordered_json::array()}});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("tokenizer_config.json: chat_template.tool_use:1:"),
                                    HasSubstr("trans")));
  }
}

TEST_F(ChatTemplateFiles, AProcessorsTemplateIsTheLastResort) {
  write("chat_template.json", R"({"chat_template": "processor"})");
  EXPECT_EQ(rendered(), "processor");
  write("tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_EQ(rendered(), "processor");
  write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(rendered(), "config");
}

TEST_F(ChatTemplateFiles, AFileOfItsOwnWins) {
  write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": "config"})");
  write("chat_template.jinja", "{{ bos_token }}own\n");
  EXPECT_EQ(rendered(), "<s>own");
}

TEST_F(ChatTemplateFiles, ErrorsNameTheFile) {
  write("tokenizer_config.json", "{");
  EXPECT_THAT(error(), AllOf(HasSubstr("tokenizer_config.json"), HasSubstr("JSON")));
  write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_THAT(error(), HasSubstr("chat_template: expected a template, or several with names"));
  write("tokenizer_config.json", R"({"chat_template": [{"name": "x"}]})");
  EXPECT_THAT(error(), HasSubstr("chat_template[0].template: expected a string"));
  write("chat_template.jinja", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(error(), HasSubstr("chat_template.jinja: a Git LFS pointer"));
  write("chat_template.jinja", "a\n{% if %}");
  EXPECT_THAT(error(), HasSubstr("chat_template.jinja:2: expected an expression"));
}

TEST(ChatTemplate, WhatIsThereWithoutVariables) {
  const ChatTemplate chat(
      "{{ tools is none }}{{ documents is none }}{{ x is defined }}{{ add_generation_prompt }}");
  EXPECT_EQ(chat.render(kHi, false), "TrueTrueFalseFalse");
  EXPECT_EQ(chat.render(kHi, true, {{"x", 1}, {"tools", ordered_json::array()}}),
            "FalseTrueTrueTrue");
}

TEST(ChatTemplate, TheClockTellsTheDate) {
  setenv("TZ", "UTC", 1);
  tzset();
  const ChatTemplate chat("{{ strftime_now('%d %b %Y') }}", "dated", [] { return 1700000000; });
  EXPECT_EQ(chat.render(kHi, true), "14 Nov 2023");
}

TEST(ChatTemplate, ItsOwnErrorsArriveWithNameAndLine) {
  const ChatTemplate chat("\n{{ raise_exception('roles must alternate') }}", "strict");
  try {
    (void)chat.render(kHi, true);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "strict:2: roles must alternate");
  }
}

TEST(ChatTemplate, KeepsTheOrderOfKeys) {
  const ChatTemplate chat("{{ tools | tojson }}");
  const ordered_json tools = ordered_json::parse(R"([{"z": 1, "a": {"y": [], "b": "é"}}])");
  EXPECT_EQ(chat.render(kHi, true, {{"tools", tools}}), R"([{"z": 1, "a": {"y": [], "b": "é"}}])");
}

}  // namespace
}  // namespace winnow
