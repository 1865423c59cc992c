#include "server/openai/sampling_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/json.h"
#include "server/http/api_error.h"

namespace winnow::server {
namespace {

using nlohmann::json;

constexpr double kMostBias = 100.0;
constexpr std::size_t kMostBiased = 1024;
constexpr std::size_t kMostBadWords = 1024;
constexpr std::size_t kMostBreakers = 64;

float bias_of(const Fields& fields, const json& value) {
  if (value == false) {
    return -std::numeric_limits<float>::infinity();
  }
  if (!value.is_number() || !(std::abs(value.get<double>()) <= kMostBias)) {
    throw ApiError(
        400,
        fmt::format("{} holds {}; expected numbers from -{} to {}", fields.name_of("logit_bias"),
                    described(value), kMostBias, kMostBias),
        fields.name_of("logit_bias"), "invalid_value");
  }
  return value.get<float>();
}

std::int32_t bias_token(const Fields& fields, const std::string& text) {
  std::int32_t token = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), token);
  if (error != std::errc() || end != text.data() + text.size() || token < 0) {
    fields.reject("logit_bias", "token ids as keys");
  }
  return token;
}

// OpenAI's object, or llama.cpp's array of pairs, in which a text stands for all of its tokens.
void parse_bias(const Fields& fields, engine::LogitRules& rules, TextRules& texts) {
  const json* value = fields.find("logit_bias");
  if (value == nullptr) {
    return;
  }
  if (!value->is_structured() || value->size() > kMostBiased) {
    fields.reject("logit_bias", fmt::format("an object of at most {} tokens", kMostBiased));
  }
  if (value->is_object()) {
    for (const auto& [token, bias] : value->items()) {
      rules.bias.push_back({bias_token(fields, token), bias_of(fields, bias)});
    }
    return;
  }
  for (const json& pair : *value) {
    if (!pair.is_array() || pair.size() != 2) {
      fields.reject("logit_bias", "pairs of a token and its bias");
    }
    if (pair[0].is_string()) {
      texts.bias.emplace_back(pair[0].get<std::string>(), bias_of(fields, pair[1]));
    } else {
      const auto token = token_ids(json::array({pair[0]}), fields.name_of("logit_bias"));
      rules.bias.push_back({token.front(), bias_of(fields, pair[1])});
    }
  }
}

}  // namespace

void parse_sampling(const Fields& fields, SamplingOptions& sampling) {
  sampling.temperature = fields.number_or("temperature", sampling.temperature);
  sampling.top_p = fields.number_or("top_p", sampling.top_p);
  if (sampling.top_p == 0.0) {  // only the most likely token
    sampling.top_p = std::numeric_limits<double>::min();
  }
  sampling.top_k =
      std::max(0, fields.integer_or("top_k", sampling.top_k));  // -1 is vLLM's value for all
  sampling.min_p = fields.number_or("min_p", sampling.min_p);
  sampling.repetition_penalty = fields.number_or("repetition_penalty", sampling.repetition_penalty);
  sampling.frequency_penalty = fields.number_or("frequency_penalty", 0.0);
  sampling.presence_penalty = fields.number_or("presence_penalty", 0.0);
  if (fields.integer_or("repeat_last_n", -1) == 0) {  // llama.cpp's 0 means none
    sampling.repetition_penalty = 1.0;
    sampling.frequency_penalty = 0.0;
    sampling.presence_penalty = 0.0;
  }
}

void parse_rules(const Fields& fields, engine::LogitRules& rules, TextRules& texts) {
  parse_bias(fields, rules, texts);
  rules.allowed = fields.tokens("allowed_token_ids");
  if (rules.allowed.empty() && fields.find("allowed_token_ids") != nullptr) {
    fields.reject("allowed_token_ids", "at least one token id");
  }
  texts.bad_words = fields.texts("bad_words", kMostBadWords);
  std::erase(texts.bad_words, "");
  rules.min_tokens = fields.integer_or("min_tokens", 0);
  rules.penalty_tokens = std::max(0, fields.integer_or("repeat_last_n", -1));
  rules.dry.base = fields.number_or("dry_base", rules.dry.base);
  rules.dry.allowed_length = fields.integer_or("dry_allowed_length", rules.dry.allowed_length);
  rules.dry.last_tokens = fields.integer_or("dry_penalty_last_n", -1);
  rules.dry.multiplier = rules.dry.last_tokens == 0 ? 0.0 : fields.number_or("dry_multiplier", 0.0);
  std::vector<std::string> breakers = fields.find("dry_sequence_breakers") != nullptr
                                          ? fields.texts("dry_sequence_breakers", kMostBreakers)
                                          : std::vector<std::string>{"\n", ":", "\"", "*"};
  if (rules.dry.multiplier > 0.0) {
    std::erase(breakers, "");
    texts.dry_breakers = std::move(breakers);
  }
  rules.typical_p = fields.number_or("typical_p", 1.0);
  if (rules.typical_p == 0.0) {
    rules.typical_p = std::numeric_limits<double>::min();
  }
  rules.xtc.probability = fields.number_or("xtc_probability", 0.0);
  rules.xtc.threshold = fields.number_or("xtc_threshold", rules.xtc.threshold);
  rules.mirostat.version = fields.integer_or("mirostat", 0);
  rules.mirostat.tau = fields.number_or("mirostat_tau", rules.mirostat.tau);
  rules.mirostat.eta = fields.number_or("mirostat_eta", rules.mirostat.eta);
}

}  // namespace winnow::server
