#include "server/openai/rerank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/token_constraint.h"
#include "server/http/api_error.h"
#include "server/openai/field_table.h"
#include "server/openai/json_fields.h"
#include "server/openai/prompt_batch.h"
#include "server/service.h"

namespace winnow::server {
namespace {

using nlohmann::json;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMostDocuments = 1024;
// Qwen3-Reranker's instruction from its training.
constexpr std::string_view kInstruction =
    "Given a web search query, retrieve relevant passages that answer the query";
constexpr std::string_view kPrompt =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n<Instruct>: {}\n<Query>: {}\n<Document>: {}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n";

struct Verdict {
  std::int32_t yes;
  std::int32_t no;
};

/// Allows only the two words, so that their probabilities sum to 1.
class YesOrNo : public engine::TokenConstraint {
 public:
  explicit YesOrNo(Verdict words) : words_(words) {}
  [[nodiscard]] std::unique_ptr<engine::TokenConstraint> fork() const override {
    return std::make_unique<YesOrNo>(*this);
  }
  void allow(std::span<std::uint64_t> allowed) const override {
    std::ranges::fill(allowed, 0);
    for (const std::int32_t word : {words_.yes, words_.no}) {
      allowed[static_cast<std::size_t>(word) / 64] |= std::uint64_t{1} << (word % 64);
    }
  }
  void accept(std::int32_t /*token*/) override {}

 private:
  Verdict words_;
};

struct Ranking {
  std::string id;
  std::string model;
  std::vector<std::string> documents;
  std::vector<double> scores;
  std::size_t top = 0;
  bool tells_documents = true;
  int tokens = 0;
  std::vector<std::string> ignored;
};

Verdict words_of(const Service& service) {
  const ModelTask& task = service.task();
  const auto token = [&](const std::string& word) {
    const auto tokens =
        service.tokenizer().encode(word, {.add_special = false, .parse_special = false});
    if (tokens.size() != 1) {
      throw ApiError(400, fmt::format("this model cannot rank: {} is no token of its own", word),
                     "model", "unsupported_model");
    }
    return tokens.front();
  };
  return {token(task.yes), token(task.no)};
}

std::vector<std::string> read_documents(const Fields& fields) {
  const json& value = *fields.find("documents");
  const auto reject = [&fields] {
    fields.reject("documents",
                  fmt::format("1 to {} strings, or objects with text", kMostDocuments));
  };
  if (!value.is_array() || value.empty() || value.size() > kMostDocuments) {
    reject();
  }
  std::vector<std::string> documents;
  for (const json& document : value) {
    const json text = document.is_object() ? document.value("text", json()) : document;
    if (!text.is_string()) {
      reject();
    }
    documents.push_back(text);
  }
  return documents;
}

HttpResponse answer(const Ranking& ranking) {
  std::vector<std::size_t> order(ranking.documents.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](std::size_t i) { return ranking.scores[i]; });
  order.resize(std::min(order.size(), ranking.top));
  Json results = Json::array();
  for (const std::size_t i : order) {
    results.push_back({{"index", i}, {"relevance_score", ranking.scores[i]}});
    if (ranking.tells_documents) {
      results.back()["document"] = {{"text", ranking.documents[i]}};
    }
  }
  HttpResponse response = json_response(
      {{"id", ranking.id},
       {"model", ranking.model},
       {"results", std::move(results)},
       {"usage", {{"prompt_tokens", ranking.tokens}, {"total_tokens", ranking.tokens}}}});
  add_ignored(ranking.ignored, response);
  return response;
}

// One token of the answer suffices: the other word's probability is the complement.
engine::Request question(std::vector<std::int32_t> prompt, Verdict words, int priority) {
  engine::Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = 1;
  request.sampling.temperature = 0.0;
  request.logprobs = 0;
  request.priority = priority;
  request.constraint = std::make_shared<const YesOrNo>(words);
  return request;
}

std::string required_text(const Fields& fields, const char* name) {
  const auto text = fields.text(name);
  if (!text) {
    fields.reject(name, "a string");
  }
  return *text;
}

}  // namespace

void rerank(Service& service, const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
  CheckedBody checked = check_fields(parse_body(request.body), Endpoint::rerank);
  const Fields fields(checked.value, checked.spelled);
  const auto ranking = std::make_shared<Ranking>();
  ranking->model = fields.text("model").value_or(service.config().model_name);
  service.check_model(ranking->model);
  const std::string query = required_text(fields, "query");
  if (fields.find("documents") == nullptr) {
    fields.reject("documents", "an array of strings");
  }
  ranking->documents = read_documents(fields);
  const Verdict words = words_of(service);
  ranking->scores.resize(ranking->documents.size());
  ranking->top = static_cast<std::size_t>(
      fields.integer_or("top_n", static_cast<int>(ranking->documents.size())));
  ranking->tells_documents = fields.boolean_or("return_documents", true);
  ranking->ignored = std::move(checked.ignored);
  service.note_ignored(request.id, ranking->ignored);
  const std::string instruction = fields.text("instruction").value_or(std::string(kInstruction));
  std::vector<engine::Request> requests;
  for (std::size_t i = 0; i < ranking->documents.size(); ++i) {
    const std::string param = fmt::format("documents[{}]", i);
    std::vector<std::int32_t> prompt =
        service.prompts().text(fmt::format(kPrompt, instruction, query, ranking->documents[i]),
                               /*add_special=*/false, param);
    if (static_cast<int>(prompt.size()) >= service.context()) {
      throw ApiError(400,
                     fmt::format("{} is too long: with the query it has {} tokens, and the context "
                                 "is {}",
                                 param, prompt.size(), service.context()),
                     param, "context_length_exceeded");
    }
    ranking->tokens += static_cast<int>(prompt.size());
    requests.push_back(question(std::move(prompt), words, fields.integer_or("priority", 0)));
    requests.back().adapter = service.adapter(ranking->model);
  }
  ranking->id = fmt::format("rerank-{}", request.id);
  std::make_shared<PromptBatch>(
      service, std::move(requests),
      PromptBatch::Hooks{.on_token =
                             [ranking, words](std::size_t i, const engine::TokenEvent& event) {
                               const double said = std::exp(double{event.logprob});
                               ranking->scores[i] = event.token == words.yes ? said : 1.0 - said;
                             },
                         .answer = [ranking] { return answer(*ranking); }},
      reply)
      ->start();
}

}  // namespace winnow::server
