#include "server/openai/field_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "server/http/api_error.h"
#include "server/openai/field_types.h"

namespace winnow::server {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

CheckedBody checked(const char* body, Endpoint endpoint = Endpoint::completions) {
  return check_fields(json::parse(body), endpoint);
}

constexpr std::array kEndpoints{Endpoint::completions, Endpoint::chat,     Endpoint::tokenize,
                                Endpoint::detokenize,  Endpoint::messages, Endpoint::responses,
                                Endpoint::embeddings,  Endpoint::rerank};

std::string field_error(const char* body, Endpoint endpoint = Endpoint::completions) {
  try {
    checked(body, endpoint);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.param() + ": " + error.what();
  }
  return "no error";
}

TEST(FieldTable, NamesAreUniqueAndAliasesLeadSomewhere) {
  for (const Endpoint endpoint : kEndpoints) {
    const auto is_of = [endpoint](const FieldRule& rule) {
      return (rule.endpoints & static_cast<std::uint8_t>(endpoint)) != 0;
    };
    std::set<std::string_view> names;
    std::set<std::string_view> targets;
    for (const FieldRule& rule : field_rules()) {
      if (is_of(rule)) {
        EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
        targets.insert(rule.alias_of);
      }
    }
    targets.erase("");
    for (const std::string_view target : targets) {
      EXPECT_TRUE(names.contains(target)) << target;
    }
  }
}

TEST(FieldTable, TypesAndRangesAreCheckedUnderTheClientsName) {
  EXPECT_THAT(field_error(R"({"temperature": 101})"), HasSubstr("temperature: temperature is 101"));
  EXPECT_THAT(field_error(R"({"n_predict": "5"})"), HasSubstr("n_predict: n_predict is \"5\""));
  EXPECT_THAT(field_error(R"({"stream": 1})"), HasSubstr("stream: stream is 1; expected true"));
  EXPECT_THAT(field_error(R"({"n": 129})"), HasSubstr("an integer from 1 to 128"));
}

TEST(FieldTable, EveryHonouredFieldHasATypeAndMayBeNull) {
  for (const Endpoint endpoint : kEndpoints) {
    for (const FieldRule& rule : field_rules()) {
      const bool is_of = (rule.endpoints & static_cast<std::uint8_t>(endpoint)) != 0;
      if (is_of && rule.treatment == Treatment::honoured && rule.alias_of.empty()) {
        const json types = field_schema(rule, endpoint).value("type", json());
        ASSERT_TRUE(types.is_array()) << rule.name;
        EXPECT_EQ(types.back(), "null") << rule.name;
      }
    }
  }
}

TEST(FieldTable, WhatIsInAFieldHasATypeToo) {
  EXPECT_THAT(field_error(R"({"stop": ["a", 5]})"),
              HasSubstr("stop: stop[1] is 5; expected a string"));
  EXPECT_THAT(field_error(R"({"prompt": [[[1]]]})"), HasSubstr("prompt: prompt[0][0] is"));
  EXPECT_THAT(field_error(R"({"prompt": [5, -1]})"), HasSubstr("prompt[1] is -1"));
  EXPECT_THAT(field_error(R"({"response_format": {"type": 5}})"),
              HasSubstr("response_format.type: response_format.type is 5; expected a string"));
  EXPECT_THAT(field_error(R"({"metadata": [1]})", Endpoint::responses),
              HasSubstr("metadata: metadata is an array of 1; expected an object"));
  EXPECT_THAT(field_error(R"({"output_config": "json"})", Endpoint::messages),
              HasSubstr("output_config: output_config is \"json\"; expected an object"));
  EXPECT_THAT(field_error(R"({"tools": [{"function": {"name": true}}]})", Endpoint::tokenize),
              HasSubstr("tools[0].function.name: "));
  EXPECT_THAT(field_error(R"({"stop_sequences": "a"})", Endpoint::messages),
              HasSubstr("stop_sequences: stop_sequences is \"a\"; expected an array"));
  EXPECT_EQ(field_error(R"({"prompt": [5.0, 6], "stop": null, "seed": 18446744073709551615})"),
            "no error");
}

TEST(FieldTable, AliasesAreTheFieldsThatTheyStandFor) {
  const CheckedBody body = checked(R"({"n_predict": 3, "repeat_penalty": 1.5, "n": null})");
  EXPECT_EQ(body.value, json::parse(R"({"max_tokens": 3, "repetition_penalty": 1.5})"));
  EXPECT_EQ(body.spelled.at("max_tokens"), "n_predict");
  EXPECT_THAT(field_error(R"({"max_tokens": 3, "n_predict": 3})"), HasSubstr("are the same field"));
  EXPECT_EQ(field_error(R"({"max_tokens": 3, "n_predict": null})"), "no error");
}

TEST(FieldTable, WhatIsRefusedMayAskForNothing) {
  EXPECT_THAT(field_error(R"({"use_beam_search": true})"),
              HasSubstr("use_beam_search: use_beam_search is not supported"));
  EXPECT_THAT(field_error(R"({"modalities": ["text", "audio"]})", Endpoint::chat),
              HasSubstr("modalities"));
  EXPECT_EQ(field_error(R"({"modalities": ["text"], "audio": null, "lora": [], "watermark": false,
                         "length_penalty": 1.0, "top_n_sigma": -1, "prompt_embeds": ""})",
                        Endpoint::chat),
            "no error");
}

TEST(FieldTable, NothingIsIgnoredInSilence) {
  EXPECT_THAT(checked(R"({"user": "me", "metadata": null, "what_is_this": 1})").ignored,
              ElementsAre("user", "what_is_this"));
  EXPECT_THAT(checked(R"({"top_logprobs": 3})").ignored, ElementsAre("top_logprobs")) << "a chat's";
}

TEST(FieldTable, MistakesInSpellingAreNotIgnored) {
  for (const char* body : {R"({"temprature": 1})", R"({"temperatrue": 1})",
                           R"({"temperature_": 1})", R"({"max_token": 1})", R"({"Stop": 1})"}) {
    EXPECT_THAT(field_error(body), HasSubstr("meant?")) << body;
  }
  EXPECT_EQ(field_error(R"({"temper": 1})"), "no error");
}

TEST(FieldTable, IgnoredNamesAreSafeInAHeader) {
  HttpResponse response;
  add_ignored({}, response);
  EXPECT_TRUE(response.headers.empty());
  add_ignored({"user", "a\r\nSet-Cookie: x", std::string(5000, 'y')}, response);
  ASSERT_EQ(response.headers.size(), 1U);
  EXPECT_EQ(response.headers[0].second, "user, ?, ...");
}

TEST(FieldTable, SaysOfWhichPathsAFieldIsRefusedOrIgnored) {
  const std::string page = field_page();
  const std::size_t refused = page.find("\nRefused");
  const std::size_t ignored = page.find("\nIgnored");
  ASSERT_LT(refused, ignored);
  const auto items_of = [&](std::size_t begin, std::size_t end, const std::string& name) {
    std::string items;
    std::istringstream lines(page.substr(begin, end - begin));
    for (std::string line; std::getline(lines, line);) {
      const std::size_t paths = line.find(": ");
      if (line.starts_with("- ") && line.find("`" + name + "`", paths) != std::string::npos) {
        items += line.substr(2, paths - 2) + ";";
      }
    }
    return items;
  };
  // Chats support some fields that completions refuse; /v1/responses stores answers.
  EXPECT_EQ(items_of(refused, ignored, "tools"), "completions;");
  EXPECT_EQ(items_of(refused, ignored, "prompt"), "responses;");
  EXPECT_EQ(items_of(refused, ignored, "truncate_prompt_tokens"), "embeddings, rerank;");
  EXPECT_EQ(items_of(ignored, page.size(), "store"), "completions, chats;");
  EXPECT_EQ(items_of(ignored, page.size(), "service_tier"),
            "completions, chats;messages;responses;");
}

TEST(FieldTable, IsTheOneInTheDocumentation) {
  std::ifstream file(std::string(WINNOW_SOURCE_DIR) + "/docs/reference/request-fields.md");
  const std::string docs{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(docs.find(field_page()), std::string::npos)
      << "docs/reference/request-fields.md is to hold what `winnow serve --fields` prints";
}

}  // namespace
}  // namespace winnow::server
