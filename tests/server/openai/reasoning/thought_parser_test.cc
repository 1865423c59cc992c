#include "server/openai/reasoning/thought_parser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace winnow::server {
namespace {

const ThoughtFormat& think() {
  return *find_thought_format("think");
}

/// "thought|content" of a text that arrives in pieces of `size` bytes.
std::string parsed_thought(ThoughtStart start, std::string_view text, std::size_t size,
                           const char* format) {
  const auto parser = make_thought_parser(*find_thought_format(format), start);
  std::string thought;
  std::string content;
  const auto take = [&](const ThoughtParser::Part& part) {
    thought += part.thought;
    content += part.content;
  };
  for (std::size_t at = 0; at < text.size(); at += size) {
    take(parser->push(text.substr(at, size)));
  }
  take(parser->finish());
  return thought + "|" + content;
}

void expect_thought(ThoughtStart start, std::string_view text, const std::string& expected,
                    const char* format = "think") {
  for (const std::size_t size : {std::size_t{1}, std::size_t{3}, text.size()}) {
    EXPECT_EQ(parsed_thought(start, text, size, format), expected)
        << text << " in pieces of " << size;
  }
}

TEST(ThoughtParser, AnAnswerMayBeginWithAThought) {
  expect_thought(ThoughtStart::free, "<think>\nIt is\nso.\n</think>\n\nYes.", "It is\nso.|Yes.");
  expect_thought(ThoughtStart::free, "\n<think>a</think>b", "a|b");
  expect_thought(ThoughtStart::free, "<think></think>b", "|b");
  expect_thought(ThoughtStart::free, "Yes <think>no</think>", "|Yes <think>no</think>");
  expect_thought(ThoughtStart::free, "<thin", "|<thin");
}

TEST(ThoughtParser, APromptMayHaveBegunOne) {
  expect_thought(ThoughtStart::open, "It is.\n</think>\n\nYes.", "It is.|Yes.");
  expect_thought(ThoughtStart::open, "<think>\nIt is.</think>Yes.", "It is.|Yes.");
  expect_thought(ThoughtStart::open, "a < b", "a < b|");
  expect_thought(ThoughtStart::closed, "<think>x", "|<think>x");
}

/// max_tokens may cut an answer inside a mark.
TEST(ThoughtParser, ACutMarkIsNoText) {
  expect_thought(ThoughtStart::open, "a < b </thin", "a < b|");
  expect_thought(ThoughtStart::free, "<think>\nso\n</think", "so|");
  expect_thought(ThoughtStart::open, "<think", "|");
  expect_thought(ThoughtStart::open, "so[/TH", "so|", "mistral");
  for (const char* text :
       {"<|channel|>analysis<|message|>so<|en", "<|channel|>analysis<|message|>so<|"}) {
    expect_thought(ThoughtStart::free, text, "so|", "harmony");
  }
  expect_thought(ThoughtStart::closed, "so<|retur", "|so", "harmony");
  expect_thought(ThoughtStart::closed, "if (a <", "|if (a <", "harmony");
  expect_thought(ThoughtStart::free, " to=functions.f<|message|>{\"a\": 1}<|cal",
                 "| to=functions.f<|message|>{\"a\": 1}", "harmony");
}

TEST(ThoughtParser, TheEndOfAPromptSaysHowAnAnswerBegins) {
  EXPECT_EQ(thought_start(think(), "<|im_start|>assistant\n<think>\n"), ThoughtStart::open);
  EXPECT_EQ(thought_start(think(), "<think>\n\n</think>\n\n"), ThoughtStart::closed);
  EXPECT_EQ(thought_start(think(), "<|im_start|>assistant\n"), ThoughtStart::free);
  EXPECT_EQ(thought_start(think(), ""), ThoughtStart::free);
}

TEST(ThoughtParser, HarmonyHasChannels) {
  const auto expect = [](std::string_view text, const std::string& expected,
                         ThoughtStart start = ThoughtStart::free) {
    expect_thought(start, text, expected, "harmony");
  };
  expect("<|channel|>analysis<|message|>a < b<|end|><|start|>assistant<|channel|>final<|message|>x",
         "a < b|x");
  expect("<|channel|>final<|message|>Yes.<|return|>", "|Yes.");
  expect(
      "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b"
      "<|end|><|start|>assistant<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant"
      "<|channel|>final<|message|>No.",
      "a\nb|Wait.\nNo.");
  expect("<|channel|>analysis<|message|>cut of", "cut of|");
  expect("<|channel|>analysis<|message|>cut<|end|><|start|>assis", "cut|");
  expect("<|channel|>fin", "|");
  expect("As plain as that.", "|As plain as that.");
  expect("a", "|a");
  expect("rest of it<|end|>", "|rest of it", ThoughtStart::closed);
  expect("more<|end|><|start|>assistant<|channel|>final<|message|>x", "more|x", ThoughtStart::open);
  expect("<|start|>user<|message|>hi", "|user<|message|>hi");
}

TEST(ThoughtParser, HarmonyHandsCallsOn) {
  for (const char* header : {"<|channel|>commentary to=functions.f <|constrain|>json",
                             " to=functions.f<|channel|>"
                             "commentary json",
                             "<|channel|>analysis to=functions.f code"}) {
    expect_thought(ThoughtStart::free,
                   fmt::format("<|channel|>analysis<|message|>a<|end|><|start|>assistant{}"
                               "<|message|>{{\"a\": 1}}<|call|>",
                               header),
                   "a| to=functions.f<|message|>{\"a\": 1}<|call|>", "harmony");
  }
}

TEST(ThoughtParser, HarmonyAnswersBeginWithAHeader) {
  const ThoughtFormat& harmony = *find_thought_format("harmony");
  EXPECT_EQ(thought_start(harmony, "<|end|><|start|>assistant"), ThoughtStart::free);
  EXPECT_EQ(thought_start(harmony, "<|channel|>final<|message|>The sea"), ThoughtStart::closed);
  EXPECT_EQ(thought_start(harmony, "<|channel|>analysis<|message|>"), ThoughtStart::open);
}

}  // namespace
}  // namespace winnow::server
