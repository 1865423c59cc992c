#include "server/openai/embeddings.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "server/http/api_error.h"
#include "server/openai/completion_request.h"
#include "server/openai/field_table.h"
#include "server/openai/json_fields.h"
#include "server/openai/prompt_batch.h"
#include "server/service.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostInputs = 2048;  // as in OpenAI's API

struct Embeddings {
  std::vector<std::vector<float>> states;  // by input, written by the engine's thread
  std::string model;
  std::size_t dimensions = 0;
  bool base64 = false;
  int tokens = 0;
  std::vector<std::string> ignored;
};

std::vector<std::vector<std::int32_t>> read_inputs(const Service& service, const Fields& fields) {
  const PromptTokens& prompts = service.prompts();
  std::vector<std::vector<std::int32_t>> inputs;
  for (const Prompt& prompt : parse_prompts(fields, "input", kMostInputs)) {
    const std::string param = fmt::format("input[{}]", inputs.size());
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      inputs.push_back(prompts.text(*text, /*add_special=*/true, param));
    } else {
      inputs.push_back(std::get<std::vector<std::int32_t>>(prompt));
      prompts.check_tokens(inputs.back(), param);
    }
    if (inputs.back().empty() || static_cast<int>(inputs.back().size()) > service.context()) {
      throw ApiError(400,
                     fmt::format("{} has {} tokens; 1 to {} are taken", param, inputs.back().size(),
                                 service.context()),
                     param, "context_length_exceeded");
    }
  }
  return inputs;
}

HttpResponse answer(const Embeddings& made, bool normalises) {
  Json data = Json::array();
  for (std::size_t i = 0; i < made.states.size(); ++i) {
    const std::vector<float> vector = embedding_of(made.states[i], made.dimensions, normalises);
    data.push_back({{"object", "embedding"},
                    {"index", i},
                    {"embedding", made.base64 ? Json(base64_of(vector)) : Json(vector)}});
  }
  HttpResponse response =
      json_response({{"object", "list"},
                     {"data", std::move(data)},
                     {"model", made.model},
                     {"usage", {{"prompt_tokens", made.tokens}, {"total_tokens", made.tokens}}}});
  add_ignored(made.ignored, response);
  return response;
}

}  // namespace

std::vector<float> embedding_of(std::vector<float> state, std::size_t dimensions, bool normalises) {
  state.resize(dimensions);
  const double length =
      std::sqrt(std::inner_product(state.begin(), state.end(), state.begin(), 0.0));
  if (normalises && length > 0.0) {
    for (float& value : state) {
      value = static_cast<float>(value / length);
    }
  }
  return state;
}

std::string base64_of(const std::vector<float>& values) {
  std::vector<std::uint8_t> bytes;
  for (const float value : values) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<std::uint8_t>(bits >> shift));
    }
  }
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');  // plus a terminating zero
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes.data(),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(length));
  return text;
}

void embed(Service& service, const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
  CheckedBody checked = check_fields(parse_body(request.body), Endpoint::embeddings);
  const Fields fields(checked.value, checked.spelled);
  const auto made = std::make_shared<Embeddings>();
  made->model = fields.text("model").value_or(service.config().model_name);
  service.check_model(made->model);
  const std::string format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    fields.reject("encoding_format", "\"float\" or \"base64\"");
  }
  made->base64 = format == "base64";
  const int most = service.model().hidden;
  made->dimensions = static_cast<std::size_t>(fields.integer("dimensions", 1, most).value_or(most));
  made->ignored = std::move(checked.ignored);
  service.note_ignored(request.id, made->ignored);
  std::vector<engine::Request> requests;
  auto inputs = read_inputs(service, fields);
  made->states.resize(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    made->tokens += static_cast<int>(inputs[i].size());
    engine::Request& asked = requests.emplace_back();
    asked.prompt = std::move(inputs[i]);
    asked.max_tokens = 0;
    asked.priority = fields.integer_or("priority", 0);
    asked.adapter = service.adapter(made->model);
    asked.on_state = [made, i](std::span<const float> state) {
      made->states[i].assign(state.begin(), state.end());
    };
  }
  const bool normalises = service.task().normalises;
  std::make_shared<PromptBatch>(
      service, std::move(requests),
      PromptBatch::Hooks{.on_token = {},
                         .answer = [made, normalises] { return answer(*made, normalises); }},
      reply)
      ->start();
}

}  // namespace winnow::server
