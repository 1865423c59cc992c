#include "server/openai/completion_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "server/http/api_error.h"

namespace winnow::server {
namespace {

TEST(CompletionJson, AFrameAroundATextIsThePieceThatSaysIt) {
  for (const bool chat : {false, true}) {
    const AnswerHead head{.id = "a \"?\"", .created = 7, .model = "\"?\" model", .chat = chat};
    const TextFrame frame = text_frame(head, 3);
    for (const std::string text :
         {" word", "", "?", "\"?\"", "\n\t\\", "\u00e9\u4e16", "{\"a\": [1]}"}) {
      const ToldText told{.index = 3, .text = text, .logprobs = {}, .token_ids = {}, .finish = {}};
      nlohmann::ordered_json choices = nlohmann::ordered_json::array();
      choices.push_back(delta_json(told, chat, /*first=*/false));
      if (chat && text.empty()) {
        choices[0]["delta"]["content"] = "";
      }
      EXPECT_EQ(frame.before + dump(text) + frame.behind,
                dump(answer_json(head, choices, /*stream=*/true)));
    }
  }
}

TEST(CompletionJson, QuotesAsADumpDoes) {
  std::string every = "a";
  for (int c = 0; c < 256; ++c) {
    every[0] = static_cast<char>(c);  // not UTF-8 from 0x80 on
    std::string json = "before ";
    append_quoted(every, json);
    EXPECT_EQ(json, "before " + dump(every)) << c;
  }
  for (const std::string text : {"", " plain words, 'quoted'", "\u00e9\u4e16", "two\nlines"}) {
    std::string json;
    append_quoted(text, json);
    EXPECT_EQ(json, dump(text));
  }
}

}  // namespace
}  // namespace winnow::server
