// Byte by byte against a parser of whole texts.
#include "server/openai/json_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "kvcache/property.h"
#include "server/openai/json_constraint.h"

namespace winnow::server {
namespace {

using nlohmann::json;

/// Taken to its last byte, and complete there.
bool is_object(std::string_view text) {
  JsonText json_text;
  return json_text.push(text) && json_text.is_complete();
}

TEST(JsonText, TakesObjects) {
  for (const char* text :
       {"{}", " { } ", "{\"a\":1}", "{\"a\": [1, -0.5e+10, true, false, null, \"\\u00e9\\n\"]}",
        "{\"\": {\"b\": [[], {}]}}", "{\"a\": \"\xF0\x9F\x98\x80\"}",
        "{\"a\": \"\\ud83d\\uDe00\\ud7ff\\uE000\"}", "\n{\"a\":0}"}) {
    const std::string_view trimmed =
        std::string_view(text).substr(0, std::string_view(text).find_last_of('}') + 1);
    EXPECT_TRUE(is_object(trimmed)) << text;
    EXPECT_TRUE(json::accept(trimmed)) << text;
  }
}

TEST(JsonText, TakesNothingElse) {
  for (const char* text : {"",
                           "1",
                           "[]",
                           "\"a\"",
                           "{",
                           "{}}",
                           "{} ",
                           "{,}",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{\"a\":01}",
                           "{\"a\":1.}",
                           "{\"a\":.5}",
                           "{\"a\":+1}",
                           "{\"a\":1e}",
                           "{\"a\":-}",
                           "{\"a\":tru}",
                           "{\"a\":nulll}",
                           "{\"a\":[1,]}",
                           "{\"a\":[1}",
                           "{\"a\":{]}",
                           "{\"a\":\"\n\"}",
                           "{\"a\":\"\\x\"}",
                           "{\"a\":\"\\u12g4\"}",
                           "{\"a\":\"\x80\"}",
                           "{\"a\":\"\xC0\xAF\"}",
                           "{\"a\":\"\xED\xA0\x80\"}",
                           "{\"a\":\"\xF4\x90\x80\x80\"}",
                           "{\"a\":\"\\ud83d\"}",
                           "{\"a\":\"\\ud83dx\"}",
                           "{\"a\":\"\\ud83d\\n\"}",
                           "{\"a\":\"\\ude00\"}",
                           "{\"a\":\"\\ud83d\\u0041\"}",
                           "{\"a\":\"\xC3\"}",
                           "{a:1}",
                           "{'a':1}",
                           "{\"a\":1 2}",
                           "{\"a\" 1}"}) {
    EXPECT_FALSE(is_object(text)) << text;
  }
  const std::string deep(JsonText::kMostDepth, '[');
  EXPECT_FALSE(JsonText().push("{\"a\":" + deep));
  EXPECT_TRUE(JsonText().push("{\"a\":" + deep.substr(1)));
  EXPECT_FALSE(JsonText().push("{" + std::string(JsonText::kMostSpace + 1, ' ')));
}

json any_value(int depth) {
  switch (*rc::gen::inRange(0, depth > 0 ? 7 : 5)) {
    case 0:
      return nullptr;
    case 1:
      return *rc::gen::arbitrary<bool>();
    case 2:
      return *rc::gen::arbitrary<int>();
    case 3:
      return *rc::gen::arbitrary<double>();
    case 4:
      return *rc::gen::element<std::string>("", "a\"b\\c\n", "naïve ☃ 😀", "\x01");
    case 5: {
      json array = json::array();
      for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
        array.push_back(any_value(depth - 1));
      }
      return array;
    }
    default: {
      json object = json::object();
      for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
        object[std::to_string(i)] = any_value(depth - 1);
      }
      return object;
    }
  }
}

// nullopt: a number beyond a double, which is JSON, stopped the parser before the end.
std::optional<bool> is_json(const std::string& text) {
  try {
    return !json::parse(text).is_discarded();
  } catch (const json::out_of_range&) {
    return std::nullopt;
  } catch (const json::parse_error&) {
    return false;
  }
}

TEST(JsonText, AgreesWithAParser) {
  EXPECT_TRUE(testing::holds("objects, whole and damaged", 400, [] {
    const json value{{"a", any_value(3)}};
    std::string text = value.dump(*rc::gen::element(-1, 2), ' ', *rc::gen::arbitrary<bool>());
    RC_ASSERT(is_object(text));
    const auto at = static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(text.size())));
    text[at] = static_cast<char>(*rc::gen::inRange(1, 256));
    const auto expected = is_json(text);
    RC_ASSERT(is_object(text) == expected.value_or(is_object(text)));
  }));
}

TEST(JsonConstraint, LeavesOnlyWhatGoesOn) {
  const auto tokenizer = load_tokenizer(std::string(WINNOW_SOURCE_DIR) + "/assets/dms-cr8");
  const std::int32_t end = 1;
  const auto texts = std::make_shared<const TokenTexts>(*tokenizer, tokenizer->vocab_size(),
                                                        std::vector<std::int32_t>{end});
  JsonConstraint constraint(texts);
  const auto allowed = [&] {
    std::vector<float> logits(texts->bytes.size(), 1.0F);
    constraint.mask(logits);
    std::vector<std::string> left;
    for (std::size_t token = 0; token < logits.size(); ++token) {
      if (logits[token] == 1.0F) {
        left.push_back(static_cast<std::int32_t>(token) == end ? "END" : texts->bytes[token]);
      } else {
        EXPECT_EQ(logits[token], -std::numeric_limits<float>::infinity());
      }
    }
    return left;
  };
  const auto say = [&](std::string_view text) {
    for (const std::int32_t token :
         tokenizer->encode(text, {.add_special = false, .parse_special = false})) {
      constraint.accept(token);
    }
  };
  for (const std::string& text : allowed()) {
    EXPECT_TRUE(JsonText().push(text)) << text;
  }
  EXPECT_GT(allowed().size(), 0U);
  say("{\"a\": tr");
  EXPECT_EQ(std::ranges::count(allowed(), "ue"), 1);
  EXPECT_EQ(std::ranges::count(allowed(), "END"), 0);
  say("ue}");
  EXPECT_EQ(allowed(), std::vector<std::string>{"END"});
}

}  // namespace
}  // namespace winnow::server
