#include "server/responses/responses_reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;

class Taken : public Reply {
 public:
  void send(HttpResponse response) override { text += response.body; }
  void begin(HttpResponse /*head*/) override {}
  void write(std::string piece) override { text += piece; }
  void end() override {}
  void cut() override {}
  void run(std::function<void()> work) override { work(); }
  void on_gone(std::function<void()> /*gone*/) override {}

  std::string text;
};

Json scores_of(const std::vector<std::string>& tokens) {
  Json content = Json::array();
  for (const std::string& token : tokens) {
    Json bytes = Json::array();
    for (const char c : token) {
      bytes.push_back(static_cast<unsigned char>(c));
    }
    content.push_back({{"token", token}, {"logprob", -1.0}, {"bytes", bytes}});
  }
  return {{"content", content}};
}

Json piece(Json delta, const std::vector<std::string>& tokens, Json finish = nullptr) {
  return {{"index", 0},
          {"delta", std::move(delta)},
          {"logprobs", scores_of(tokens)},
          {"finish_reason", std::move(finish)}};
}

Json thought(const char* text) {
  return {{"reasoning_content", text}};
}

Json said(const char* text) {
  return {{"content", text}};
}

Json call(const char* arguments) {
  return {{"tool_calls",
           {{{"index", 0},
             {"id", "call_0"},
             {"type", "function"},
             {"function", {{"name", "weather"}, {"arguments", arguments}}}}}}};
}

Json response_of(bool stream, const Json& pieces, Json* message = nullptr) {
  const auto taken = std::make_shared<Taken>();
  ResponsesReply reply(taken, "resp_1", Json::object(), [&](const Json&, Json kept) {
    if (message != nullptr) {
      *message = std::move(kept);
    }
  });
  const Json usage{{"prompt_tokens", 1},
                   {"prompt_tokens_details", {{"cached_tokens", 0}}},
                   {"completion_tokens", 2},
                   {"completion_tokens_details", Json::object()},
                   {"total_tokens", 3}};
  Json answer{{"created", 5}, {"model", "m"}, {"usage", usage}};
  if (!stream) {
    answer["choices"] = Json::array({{{"pieces", pieces}}});
    answer["winnow"] = Json::object();
    reply.send({.headers = {}, .body = answer.dump()});
    Json response = Json::parse(taken->text);
    response.erase("winnow");
    return response;
  }
  for (const Json& piece : pieces) {
    answer["choices"] = Json::array({piece});
    reply.write("data: " + answer.dump() + "\n\n");
  }
  reply.write("data: [DONE]\n\n");
  return Json::parse(taken->text.substr(taken->text.rfind("data: ") + 6)).at("response");
}

// The output of a whole answer, which must equal a stream's.
Json output_of(const Json& pieces, Json* message = nullptr) {
  const Json whole = response_of(/*stream=*/false, pieces, message);
  EXPECT_EQ(whole.dump(), response_of(/*stream=*/true, pieces).dump());
  return whole.at("output");
}

std::vector<std::string> kinds(const Json& output) {
  std::vector<std::string> all;
  for (const Json& item : output) {
    all.push_back(item.at("type").get<std::string>() + " " + item.at("status").get<std::string>());
  }
  return all;
}

std::string joined(const Json& item) {
  std::string text;
  for (const Json& score : item.at("content").at(0).at("logprobs")) {
    text += score.at("token").get<std::string>();
  }
  return text;
}

TEST(ResponsesReply, AnAnswerCutInItsThoughtIsAnIncompleteThought) {
  const Json output = output_of(
      {piece(said(""), {}), piece(thought("a"), {"a"}), piece(thought("b"), {"b"}, "length")});
  EXPECT_THAT(kinds(output), ElementsAre("reasoning incomplete"));
  EXPECT_EQ(output[0]["content"][0]["text"], "ab");
}

TEST(ResponsesReply, ACallCutByAStopStringIsIncomplete) {
  EXPECT_THAT(kinds(output_of({piece(call(R"({"city": "Be)"), {}), piece(said(""), {}, "stop")})),
              ElementsAre("function_call incomplete"));
  EXPECT_THAT(
      kinds(output_of({piece(call(R"({"city": "Bern"})"), {}), piece(said(""), {}, "tool_calls")})),
      ElementsAre("function_call completed"));
}

TEST(ResponsesReply, AnAnswerThatSaysNothingIsAnEmptyMessage) {
  EXPECT_THAT(kinds(output_of(Json::array({piece(said(""), {"</s>"}, "stop")}))),
              ElementsAre("message completed"));
}

TEST(ResponsesReply, ItemsHaveTheOrderInWhichTheyWereWritten) {
  Json message;
  const Json output =
      output_of({piece(thought("Hm"), {"Hm"}), piece(said("First"), {"First"}),
                 piece(call("{}"), {"{}"}), piece(said("then"), {"then"}, "length")},
                &message);
  EXPECT_THAT(kinds(output), ElementsAre("reasoning completed", "message completed",
                                         "function_call completed", "message incomplete"));
  EXPECT_EQ(message["content"], "Firstthen") << "all that was said goes on in the next answer";
}

TEST(ResponsesReply, LogprobsAreThoseOfTheText) {
  const Json output = output_of(
      {piece(thought("the sea"), {"the", " sea"}), piece(Json::object(), {"</", "think", ">"}),
       piece(said("the"), {"\n\n", "the"}), piece(said(" sea"), {" sea"}),
       piece(Json::object(), {"<call>", "the"}), piece(call("{}"), {" sea", "</call>"}),
       piece(said("the"), {"the"}), piece(said(" end"), {" end", "</s>"}, "stop")});
  ASSERT_EQ(output.size(), 4U);
  EXPECT_EQ(joined(output[1]), "the sea");
  EXPECT_EQ(joined(output[3]), "the end");
}

TEST(ResponsesReply, TokensAcrossBordersAreToldOnce) {
  const Json output = output_of({piece(said("a"), {"a<"}), piece(said("<b"), {"b"}),
                                 piece(said("\xEF\xBF\xBD"), {"c"}, "length")});
  EXPECT_EQ(joined(output[0]), "a<bc");
}

}  // namespace
}  // namespace winnow::server
