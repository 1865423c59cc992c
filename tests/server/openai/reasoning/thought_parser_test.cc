#include "server/openai/reasoning/thought_parser.h"

#include <gtest/gtest.h>

namespace winnow::server {
namespace {

const ThoughtFormat& think() {
  return *find_thought_format("think");
}

/// "thought|content" of a text that comes in pieces of `size` bytes.
std::string parsed(ThoughtStart start, std::string_view text, std::size_t size) {
  ThoughtParser parser(think(), start);
  std::string thought;
  std::string content;
  const auto take = [&](const ThoughtParser::Part& part) {
    thought += part.thought;
    content += part.content;
  };
  for (std::size_t at = 0; at < text.size(); at += size) {
    take(parser.push(text.substr(at, size)));
  }
  take(parser.finish());
  return thought + "|" + content;
}

void expect_parsed(ThoughtStart start, std::string_view text, const std::string& expected) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{3}, text.size()}) {
    EXPECT_EQ(parsed(start, text, size), expected) << text << " in pieces of " << size;
  }
}

TEST(ThoughtParser, AnAnswerMayBeginWithAThought) {
  expect_parsed(ThoughtStart::free, "<think>\nIt is\nso.\n</think>\n\nYes.", "It is\nso.|Yes.");
  expect_parsed(ThoughtStart::free, "\n<think>a</think>b", "a|b");
  expect_parsed(ThoughtStart::free, "<think></think>b", "|b");
  expect_parsed(ThoughtStart::free, "Yes <think>no</think>", "|Yes <think>no</think>");
  expect_parsed(ThoughtStart::free, "<thin", "|<thin");
}

TEST(ThoughtParser, APromptMayHaveBegunOne) {
  expect_parsed(ThoughtStart::open, "It is.\n</think>\n\nYes.", "It is.|Yes.");
  expect_parsed(ThoughtStart::open, "<think>\nIt is.</think>Yes.", "It is.|Yes.");
  expect_parsed(ThoughtStart::open, "a < b </thin", "a < b </thin|");
  expect_parsed(ThoughtStart::closed, "<think>x", "|<think>x");
}

TEST(ThoughtParser, TheEndOfAPromptSaysHowAnAnswerBegins) {
  EXPECT_EQ(thought_start(think(), "<|im_start|>assistant\n<think>\n"), ThoughtStart::open);
  EXPECT_EQ(thought_start(think(), "<think>\n\n</think>\n\n"), ThoughtStart::closed);
  EXPECT_EQ(thought_start(think(), "<|im_start|>assistant\n"), ThoughtStart::free);
  EXPECT_EQ(thought_start(think(), ""), ThoughtStart::free);
}

}  // namespace
}  // namespace winnow::server
