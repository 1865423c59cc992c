#include "server/openai/completion_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "server/http/api_error.h"

namespace winnow::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CompletionRequest completion(std::string_view body) {
  return parse_completion(body, /*chat=*/false, {});
}
CompletionRequest chat(std::string_view body) {
  return parse_completion(body, /*chat=*/true, {});
}

/// "param: message" of the error for a body.
std::string error_of(std::string_view body, bool is_chat = false) {
  try {
    parse_completion(body, is_chat, {});
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.param() + ": " + error.what();
  }
  return "no error";
}

TEST(CompletionRequest, DefaultsAreOpenAis) {
  const auto request = completion(R"({"prompt": "Hi"})");
  EXPECT_EQ(std::get<std::string>(request.prompts.at(0)), "Hi");
  EXPECT_EQ(request.sampling.temperature, 1.0);
  EXPECT_EQ(request.sampling.top_p, 1.0);
  EXPECT_EQ(request.logprobs, -1);
  EXPECT_EQ(request.n, 1);
  EXPECT_EQ(request.max_tokens, 16);
  EXPECT_FALSE(request.seed);
  EXPECT_FALSE(request.stream);
}

TEST(CompletionRequest, DefaultsMayBeTheModels) {
  RequestLimits limits;
  limits.sampling = {.temperature = 0.6, .top_k = 20, .top_p = 0.95, .repetition_penalty = 1.05};
  const auto request =
      parse_completion(R"({"prompt": "Hi", "top_k": -1, "top_p": 0.5})", /*chat=*/false, limits);
  EXPECT_EQ(request.sampling.temperature, 0.6);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.05);
  EXPECT_EQ(request.sampling.top_k, 0);
  EXPECT_EQ(request.sampling.top_p, 0.5);
}

TEST(CompletionRequest, MinusOneIsTheRestOfTheContext) {
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict", "max_new_tokens"}) {
    const std::string body = std::string(R"({"prompt": "Hi", ")") + name + "\": -1}";
    EXPECT_FALSE(completion(body).max_tokens) << name;
  }
  EXPECT_FALSE(chat(R"({"messages": [{"role": "user", "content": "a"}]})").max_tokens);
  EXPECT_THAT(error_of(R"({"prompt": "a", "max_tokens": -2})"), HasSubstr("max_tokens"));
}

TEST(CompletionRequest, NullIsAbsent) {
  EXPECT_EQ(completion(R"({"prompt": "Hi", "n": null, "stop": null, "logprobs": null,
                           "response_format": null, "suffix": null, "logit_bias": null})")
                .n,
            1);
}

TEST(CompletionRequest, PromptsOfAllKinds) {
  EXPECT_EQ(completion(R"({"prompt": ["a", "b"]})").prompts.size(), 2U);
  EXPECT_THAT(std::get<1>(completion(R"({"prompt": [1, 2]})").prompts.at(0)), ElementsAre(1, 2));
  const auto both = completion(R"({"prompt": [[1, 2], "b"]})").prompts;
  EXPECT_THAT(std::get<1>(both.at(0)), ElementsAre(1, 2));
  EXPECT_EQ(std::get<0>(both.at(1)), "b");
  for (const char* prompt : {"5", "[]", "{}", "[[1.5]]", "[1, \"a\"]", "[[\"a\"]]", "[-1]",
                             "[4294967296]", "[1e300]", "true"}) {
    EXPECT_THAT(error_of(std::string(R"({"prompt": )") + prompt + "}"), HasSubstr("prompt: "))
        << prompt;
  }
  EXPECT_THAT(error_of("{}"), HasSubstr("prompt is absent"));
  EXPECT_THAT(error_of(R"({"prompt": []})"), HasSubstr("prompt is an array of 0;"));
}

TEST(CompletionRequest, NumbersAreCheckedBeforeTheyAreConverted) {
  for (const char* n :
       {"0", "-1", "1.5", "1e30", "18446744073709551615", "9223372036854775808", "\"1\"", "[]"}) {
    EXPECT_THAT(error_of(std::string(R"({"prompt": "a", "n": )") + n + "}"), HasSubstr("n: n is "))
        << n;
  }
  EXPECT_EQ(completion(R"({"prompt": "a", "n": 2.0})").n, 2);
  EXPECT_EQ(completion(R"({"prompt": "a", "seed": -5})").seed, static_cast<std::uint64_t>(-5));
  EXPECT_EQ(completion(R"({"prompt": "a", "seed": 9007199254740993})").seed, 9007199254740993U);
  EXPECT_THAT(error_of(R"({"prompt": "a", "temperature": "hot"})"), HasSubstr("a number from"));
}

TEST(CompletionRequest, DraftsMayBeTheServersOrTheRequests) {
  const auto drafted = [](const std::string& value) {
    return parse_completion(R"({"prompt": "Hi", "winnow_draft_tokens": )" + value + "}",
                            /*chat=*/false, {})
        .draft_tokens;
  };
  EXPECT_EQ(parse_completion(R"({"prompt": "Hi"})", /*chat=*/false, {}).draft_tokens, std::nullopt);
  EXPECT_EQ(drafted("null"), std::nullopt);
  EXPECT_EQ(drafted("0"), 0);
  EXPECT_EQ(drafted("15"), 15);
  EXPECT_THROW(drafted("16"), ApiError);
  EXPECT_THROW(drafted("-1"), ApiError);
}

TEST(CompletionRequest, SeedsAreAnyOf64Bits) {
  const auto seed = [](const std::string& text) {
    return completion(R"({"prompt": "a", "seed": )" + text + "}").seed;
  };
  EXPECT_EQ(seed("9223372036854775808"), std::uint64_t{1} << 63);
  EXPECT_EQ(seed("18446744073709551615"), ~std::uint64_t{0});
  EXPECT_EQ(seed("-9223372036854775808"), std::uint64_t{1} << 63);
  EXPECT_EQ(seed("7.0"), 7U);
  EXPECT_EQ(seed("null"), std::nullopt);
  for (const char* bad :
       {"18446744073709551616", "-9223372036854775809", "1.5", "1e300", "\"1\""}) {
    EXPECT_THAT(error_of(std::string(R"({"prompt": "a", "seed": )") + bad + "}"),
                HasSubstr("seed: seed is "))
        << bad;
  }
}

TEST(CompletionRequest, StopsAreStringsAndEmptyOnesDoNotCount) {
  EXPECT_THAT(completion(R"({"prompt": "a", "stop": "x"})").stop, ElementsAre("x"));
  EXPECT_THAT(completion(R"({"prompt": "a", "stop": ["x", "", "y"]})").stop, ElementsAre("x", "y"));
  EXPECT_THAT(error_of(R"({"prompt": "a", "stop": [1]})"), HasSubstr("stop"));
  EXPECT_THAT(error_of(R"({"prompt": "a", "stop": ["", "", "", "", "", "", "", "", "",
                          "", "", "", "", "", "", "", ""]})"),
              HasSubstr("an array of 17; expected a string or at most 16"));
}

TEST(CompletionRequest, NothingIsGeneratedOnlyWhereThePromptIsEchoed) {
  EXPECT_EQ(
      completion(R"({"prompt": "a", "echo": true, "logprobs": 0, "max_tokens": 0})").max_tokens, 0);
  EXPECT_THAT(error_of(R"({"prompt": "a", "echo": true, "max_tokens": 0})"),
              HasSubstr("max_tokens: max_tokens is 0; expected -1, or an integer from 1"));
  EXPECT_THAT(error_of(R"({"prompt": "a", "max_tokens": 0})"), HasSubstr("max_tokens"));
}

TEST(CompletionRequest, ChatMessages) {
  const auto request = chat(R"({"messages": [{"role": "developer", "content": "Be brief."},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": null}], "max_tokens": 3, "max_completion_tokens": 7})");
  EXPECT_EQ(request.prompt.conversation.messages.dump(),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"ab"},)"
            R"({"role":"assistant","content":""}])");
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_THAT(error_of(R"({"messages": []})", true), HasSubstr("messages"));
  EXPECT_THAT(error_of(R"({"messages": ["Hi"]})", true), HasSubstr("messages"));
  EXPECT_THAT(error_of(R"({"messages": [{"role": "user"}]})", true),
              HasSubstr("messages[0].content"));
  EXPECT_THAT(error_of(R"({"messages": [{"content": "Hi"}]})", true),
              HasSubstr("messages[0].role"));
  EXPECT_THAT(
      error_of(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", true),
      HasSubstr("messages[0].content[0].type"));
}

TEST(CompletionRequest, ChatsOfOtherApis) {
  const std::map<std::string, std::string> names{{"messages", "input"}, {"top_k", "k"}};
  const nlohmann::ordered_json messages =
      nlohmann::ordered_json::parse(R"([{"role": "user", "content": "a", "zeta": 1, "alpha": 2}])");
  const auto request = parse_chat({{"messages", messages}, {"top_k", 3}}, {}, names);
  EXPECT_TRUE(request.chat);
  EXPECT_EQ(request.sampling.top_k, 3);
  EXPECT_EQ(request.prompt.conversation.messages.dump(),
            R"([{"role":"user","content":"a","zeta":1,"alpha":2}])");  // as given, not sorted
  const auto param_of = [&](const nlohmann::ordered_json& body) {
    try {
      parse_chat(body, {}, names);
    } catch (const ApiError& error) {
      return error.param();
    }
    return std::string("no error");
  };
  EXPECT_EQ(param_of({{"messages", {{{"content", "a"}}}}}), "input[0].role");
  EXPECT_EQ(param_of({{"messages", messages}, {"top_k", "three"}}), "k");
}

std::string list_of(std::size_t count, const std::string& item) {
  std::string list = "[" + item;
  for (std::size_t i = 1; i < count; ++i) {
    list += "," + item;
  }
  return list + "]";
}

TEST(CompletionRequest, ListsAreCountedBeforeTheyAreConverted) {
  RequestLimits limits;
  limits.context = 4;
  const auto refusal = [&](const std::string& body, bool is_chat) {
    try {
      parse_completion(body, is_chat, limits);
    } catch (const ApiError& error) {
      return error.code() + " " + error.param() + ": " + error.what();
    }
    return std::string("no error");
  };
  const std::string too_long =
      "context_length_exceeded prompt: the context is 4 tokens; the prompt has 5 and 2 more are "
      "requested";
  const std::string ids = list_of(5, "7");
  EXPECT_EQ(refusal(R"({"max_tokens": 2, "prompt": )" + ids + "}", false), too_long);
  EXPECT_EQ(refusal(R"({"max_tokens": 2, "prompt": [[7], )" + ids + "]}", false), too_long);
  EXPECT_EQ(refusal(R"({"prompt": )" + list_of(4, "7") + "}", false), "no error");
  EXPECT_EQ(refusal(R"({"truncate_prompt_tokens": 2, "prompt": )" + ids + "}", false), "no error");

  const std::string message = R"({"role": "user", "content": "a"})";
  EXPECT_EQ(refusal(R"({"messages": )" + list_of(3, message) + "}", true), "no error");
  EXPECT_THAT(refusal(R"({"messages": )" + list_of(5, message) + "}", true),
              HasSubstr("context_length_exceeded messages: the text has 325 bytes"));
  EXPECT_THAT(refusal(R"({"messages": )" + list_of(300, "{}") + "}", true),
              HasSubstr("context_length_exceeded messages"));
  const std::string parts = R"([{"role": "user", "content": )" + list_of(300, R"("")") + "}]";
  EXPECT_THAT(refusal(R"({"messages": )" + parts + "}", true),
              HasSubstr("context_length_exceeded messages"));
  EXPECT_THAT(refusal(R"({"stop": )" + list_of(17, R"("")") + R"(, "messages": )" +
                          list_of(300, "{}") + "}",
                      true),
              HasSubstr("stop: stop is an array of 17; expected a string or at most 16"));
}

TEST(CompletionRequest, LogprobsOfBothKinds) {
  EXPECT_EQ(completion(R"({"prompt": "a", "logprobs": 4})").logprobs, 4);
  EXPECT_THAT(error_of(R"({"prompt": "a", "logprobs": true})"), HasSubstr("logprobs"));
  const std::string messages = R"({"messages": [{"role": "user", "content": "a"}], )";
  EXPECT_EQ(chat(messages + R"("logprobs": true})").logprobs, 0);
  EXPECT_EQ(chat(messages + R"("logprobs": true, "top_logprobs": 5})").logprobs, 5);
  EXPECT_EQ(chat(messages + R"("logprobs": false})").logprobs, -1);
  EXPECT_THAT(error_of(messages + R"("top_logprobs": 5})", true), HasSubstr("top_logprobs"));
}

TEST(CompletionRequest, WhatIsNotDoneIsRefusedUnlessItChangesNothing) {
  EXPECT_EQ(error_of(R"({"prompt": "a", "logit_bias": {}, "best_of": 1, "suffix": "",
                         "stop_token_ids": [], "user": "me", "unheard_of": 1})"),
            "no error");
  EXPECT_NE(error_of(R"({"prompt": "a", "use_beam_search": true})"), "no error");
}

TEST(CompletionRequest, BiasOfBothKinds) {
  const auto bias =
      completion(R"({"prompt": "a", "logit_bias": {"5": -100, "7": 1.5}})").rules.bias;
  ASSERT_EQ(bias.size(), 2U);
  EXPECT_EQ(bias[0].token, 5);
  EXPECT_EQ(bias[1].bias, 1.5F);
  const auto pairs = completion(R"({"prompt": "a", "logit_bias": [[5, false], [" sea", 2]]})");
  EXPECT_EQ(pairs.rules.bias.at(0).bias, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(pairs.text_rules.bias.at(0).first, " sea");
  for (const char* bad : {"5", "[5]", R"({"a": 1})", R"({"5": 101})", R"({"5": "1"})", "[[5]]",
                          R"({"-5": 1})", "[[-5, 1]]"}) {
    EXPECT_THAT(error_of(std::string(R"({"prompt": "a", "logit_bias": )") + bad + "}"),
                HasSubstr("logit_bias: "))
        << bad;
  }
}

TEST(CompletionRequest, FieldsThatContradictEachOther) {
  EXPECT_THAT(error_of(R"({"prompt": "a", "n": 3, "best_of": 2})"), HasSubstr("best_of"));
  EXPECT_THAT(error_of(R"({"prompt": "a", "best_of": 2, "stream": true})"), HasSubstr("best_of"));
  EXPECT_THAT(error_of(R"({"prompt": "a", "min_tokens": 9, "max_tokens": 8})"),
              HasSubstr("min_tokens"));
  EXPECT_THAT(error_of(R"({"prompt": "a", "stream_options": {"include_usage": true}})"),
              HasSubstr("stream_options"));
  EXPECT_THAT(error_of(R"({"prompt": "a", "stream": true, "prompt_logprobs": 1})"),
              HasSubstr("prompt_logprobs"));
  EXPECT_THAT(error_of(R"({"prompt": "a", "guided_regex": "a", "guided_choice": ["b"]})"),
              HasSubstr("guided_choice: guided_regex and guided_choice ask for two forms"));
  EXPECT_THAT(error_of(R"({"messages": [{"role": "user", "content": "a"}], "echo": true})", true),
              HasSubstr("echo"));
  EXPECT_THAT(error_of(R"({"messages": [{"role": "user", "content": "a"}],
                           "continue_final_message": true, "add_generation_prompt": true})",
                       true),
              HasSubstr("add_generation_prompt"));
}

TEST(CompletionRequest, MessagesReachTheTemplateWhole) {
  const auto request = chat(R"({"messages": [{"role": "user", "content": "a", "name": "bob"},
      {"role": "assistant", "content": null, "refusal": null, "reasoning_content": "because",
       "tool_calls": [{"id": "c1", "type": "function",
                       "function": {"name": "f", "arguments": "{\"z\": 1, \"a\": 2}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "42"}]})");
  EXPECT_EQ(
      request.prompt.conversation.messages.dump(),
      R"([{"role":"user","content":"a","name":"bob"},)"
      R"({"role":"assistant","content":"","reasoning_content":"because","tool_calls":)"
      R"([{"id":"c1","type":"function","function":{"name":"f","arguments":{"z":1,"a":2}}}],"thinking":"because"},)"
      R"({"role":"tool","content":"42","tool_call_id":"c1"}])");
  const auto error = [](const std::string& fields) {
    return error_of(R"({"messages": [{"role": "assistant", "content": "", )" + fields + "}]}",
                    true);
  };
  EXPECT_THAT(error(R"("tool_calls": 5)"), HasSubstr("messages[0].tool_calls"));
  EXPECT_THAT(error(R"("tool_calls": [{"id": "c"}])"),
              HasSubstr("messages[0].tool_calls[0].function"));
  EXPECT_THAT(error(R"("tool_calls": [{"function": {"name": "f", "arguments": 5}}])"),
              HasSubstr("messages[0].tool_calls[0].function.arguments"));
  EXPECT_THAT(error(R"("name": 5)"), HasSubstr("messages[0].name"));
  EXPECT_THAT(error(R"("audio": {"id": "x"})"), HasSubstr("messages[0].audio"));
}

TEST(CompletionRequest, FormsByAllOfTheirNames) {
  using Kind = AnswerFormat::Kind;
  const auto format = [](const std::string& fields) {
    return chat(R"({"messages": [{"role": "user", "content": "a"}], )" + fields + "}").format;
  };
  EXPECT_EQ(format(R"("response_format": {"type": "text"})").kind, Kind::text);
  EXPECT_EQ(format(R"("response_format": {"type": "json_object"})").kind, Kind::json_object);
  for (const char* fields :
       {R"("response_format": {"type": "json_schema", "json_schema":
            {"name": "x", "strict": true, "schema": {"z": 1, "a": 2}}})",
        R"("response_format": {"type": "json_object", "schema": {"z": 1, "a": 2}})",
        R"("response_format": {"type": "json_schema", "schema": {"z": 1, "a": 2}})",
        R"("structured_outputs": {"json": {"z": 1, "a": 2}})", R"("guided_json": {"z": 1, "a": 2})",
        R"("guided_json": "{\"z\": 1, \"a\": 2}")", R"("json_schema": {"z": 1, "a": 2})"}) {
    EXPECT_EQ(format(fields).kind, Kind::json_schema) << fields;
    EXPECT_EQ(format(fields).schema.dump(), R"({"z":1,"a":2})") << fields;
  }
  EXPECT_EQ(format(R"("structured_outputs": {"regex": "a+"})").pattern, "a+");
  EXPECT_EQ(format(R"("regex": "a+")").pattern, "a+");
  EXPECT_THAT(format(R"("guided_choice": ["a", "b"])").choices, ElementsAre("a", "b"));
  EXPECT_EQ(format(R"("grammar": "root ::= \"a\"")").field, "grammar");
  EXPECT_EQ(format(R"("structured_outputs": {"json_object": true})").kind, Kind::json_object);
  const auto error = [](const std::string& fields) {
    return error_of(R"({"messages": [{"role": "user", "content": "a"}], )" + fields + "}", true);
  };
  EXPECT_THAT(error(R"("response_format": {"type": "structural_tag"})"),
              HasSubstr("response_format.type"));
  EXPECT_THAT(error(R"("response_format": {"type": "json_schema", "json_schema": {"name": "x"}})"),
              HasSubstr("response_format.json_schema.schema"));
  EXPECT_THAT(error(R"("structured_outputs": {"jsn": {}})"), HasSubstr("structured_outputs.jsn"));
  EXPECT_THAT(error(R"("json_schema": 5)"), HasSubstr("json_schema: json_schema is 5"));
}

TEST(CompletionRequest, ObjectsOfVeryManyKeysAreRefused) {
  std::string keys;
  for (int i = 0; i < 20'000; ++i) {
    keys += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":1";
  }
  EXPECT_THAT(
      error_of(R"({"messages": [{"role": "user", "content": "a", "x": {)" + keys + "}}]}", true),
      HasSubstr("more keys"));
}

TEST(CompletionRequest, BodiesThatAreNoObjects) {
  for (const char* body : {"", "[]", "5", "null", "{", R"({"prompt": "a"} x)", "\xFF",
                           "{\"prompt\": \"\xC3\"}", R"({"prompt": "a", "prompt": "b"})"}) {
    EXPECT_NE(error_of(body), "no error") << body;
  }
  EXPECT_NE(error_of(std::string(1 << 20, '[')), "no error");
}

}  // namespace
}  // namespace winnow::server
