#include "server/openai/completion_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/http/api_error.h"
#include "tokenizer/utf8.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinity; this value is indistinguishable in practice.
double finite(float logprob) {
  return std::max(double{logprob}, -9999.0);
}

// A token's text. Partial characters are spelled as OpenAI spells them.
std::string token_text(const std::string& bytes) {
  if (is_valid_utf8(bytes)) {
    return bytes;
  }
  std::string text = "bytes:";
  for (const char byte : bytes) {
    text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

Json bytes_json(const std::string& bytes) {
  Json list = Json::array();
  for (const char byte : bytes) {
    list.push_back(static_cast<unsigned char>(byte));
  }
  return list;
}

// The token's spelling. A model may choose an id that has no token.
std::string spelling(std::int32_t token, const Tokenizer& tokenizer) {
  return tokenizer.has_token(token) ? tokenizer.token_bytes(token, /*skip_special=*/false) : "";
}

Json chat_token(const std::string& bytes, double logprob) {
  return {{"token", token_text(bytes)}, {"logprob", logprob}, {"bytes", bytes_json(bytes)}};
}

// The requested alternatives, and the token itself if it is not among them.
std::vector<TokenLogprob> alternatives_of(const ScoredToken& token) {
  std::vector<TokenLogprob> all = token.alternatives;
  if (std::ranges::find(all, token.token, &TokenLogprob::token) == all.end()) {
    all.push_back({token.token, token.logprob.value_or(0.0F)});
  }
  return all;
}

Json chat_logprobs(std::span<const ScoredToken> tokens, const Tokenizer& tokenizer) {
  Json content = Json::array();
  for (const ScoredToken& token : tokens) {
    Json item = chat_token(spelling(token.token, tokenizer), finite(token.logprob.value_or(0.0F)));
    item["top_logprobs"] = Json::array();
    for (const TokenLogprob& other :
         token.alternatives.empty() ? token.alternatives : alternatives_of(token)) {
      item["top_logprobs"].push_back(
          chat_token(spelling(other.token, tokenizer), finite(other.logprob)));
    }
    content.push_back(std::move(item));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

// Two tokens may spell the same text; the likelier one comes first and stays.
Json top_logprobs(const ScoredToken& token, const Tokenizer& tokenizer) {
  Json top = Json::object();
  for (const TokenLogprob& other : alternatives_of(token)) {
    const std::string text = token_text(spelling(other.token, tokenizer));
    if (!top.contains(text)) {
      top[text] = finite(other.logprob);
    }
  }
  return top;
}

Json completion_logprobs(std::span<const ScoredToken> tokens, const Tokenizer& tokenizer) {
  Json result{{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", Json::array()},
              {"text_offset", Json::array()}};
  for (const ScoredToken& token : tokens) {
    result["tokens"].push_back(token_text(spelling(token.token, tokenizer)));
    result["token_logprobs"].push_back(token.logprob ? Json(finite(*token.logprob)) : Json());
    result["top_logprobs"].push_back(token.logprob ? top_logprobs(token, tokenizer) : Json());
    result["text_offset"].push_back(token.offset);
  }
  return result;
}

Json finish_json(const ToldText& told) {
  if (told.called && told.finish == engine::FinishReason::stop) {
    return "tool_calls";
  }
  return told.finish == engine::FinishReason::none ? Json()
                                                   : Json(engine::finish_name(told.finish));
}

// `text`: a chat's message, or the completion's text.
Json choice_of(const ToldText& told, const char* name, Json text) {
  Json choice{{"index", told.index},
              {name, std::move(text)},
              {"logprobs", told.logprobs},
              {"finish_reason", finish_json(told)}};
  if (!told.stop.empty()) {
    choice["stop_reason"] = told.stop;  // as vLLM reports it
  }
  return choice;
}

Json text_choice(const ToldText& told) {
  Json choice = choice_of(told, "text", told.text);
  if (!told.token_ids.empty()) {
    choice["token_ids"] = told.token_ids;
  }
  return choice;
}

}  // namespace

void AnswerUsage::add(const engine::CacheUsage& usage) {
  live_entries += usage.live_entries;
  dense_entries += usage.dense_entries;
  kv_bytes += usage.bytes;
  dense_bytes += usage.dense_bytes;
}

Json logprobs_json(std::span<const ScoredToken> tokens, const Tokenizer& tokenizer, bool chat) {
  return chat ? chat_logprobs(tokens, tokenizer) : completion_logprobs(tokens, tokenizer);
}

Json prompt_logprobs_json(std::span<const ScoredToken> tokens, const Tokenizer& tokenizer) {
  Json list = Json::array({nullptr});
  for (const ScoredToken& token : tokens) {
    Json item = Json::object();
    const auto add = [&](std::int32_t id, float logprob, int rank) {
      item[std::to_string(id)] = {{"logprob", finite(logprob)},
                                  {"rank", rank},
                                  {"decoded_token", token_text(spelling(id, tokenizer))}};
    };
    add(token.token, token.logprob.value_or(0.0F), token.rank);
    for (std::size_t i = 0; i < token.alternatives.size(); ++i) {
      if (token.alternatives[i].token != token.token) {
        add(token.alternatives[i].token, token.alternatives[i].logprob, static_cast<int>(i) + 1);
      }
    }
    list.push_back(std::move(item));
  }
  return list;
}

Json choice_json(const ToldText& told, bool chat) {
  if (!chat) {
    return text_choice(told);
  }
  Json message{{"role", "assistant"}, {"content", told.text}, {"refusal", nullptr}};
  if (!told.tool_calls.is_null()) {
    message["content"] = told.text.empty() ? Json() : Json(told.text);
    message["tool_calls"] = told.tool_calls;
  }
  if (!told.thought.empty()) {
    message["reasoning_content"] = told.thought;
  }
  if (!told.token_ids.empty()) {
    message["token_ids"] = told.token_ids;
  }
  return choice_of(told, "message", std::move(message));
}

Json delta_json(const ToldText& told, bool chat, bool first) {
  if (!chat) {
    return text_choice(told);
  }
  Json delta = Json::object();
  if (first) {
    delta["role"] = "assistant";
  }
  if ((first && told.tool_calls.is_null()) || !told.text.empty()) {
    delta["content"] = told.text;
  }
  if (!told.thought.empty()) {
    delta["reasoning_content"] = told.thought;
  }
  if (!told.tool_calls.is_null()) {
    delta["tool_calls"] = told.tool_calls;
  }
  if (!told.token_ids.empty()) {
    delta["token_ids"] = told.token_ids;
  }
  return choice_of(told, "delta", std::move(delta));
}

Json answer_json(const AnswerHead& head, Json choices, bool stream) {
  const std::string_view object =
      head.chat ? (stream ? "chat.completion.chunk" : "chat.completion") : "text_completion";
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"choices", std::move(choices)}};
}

std::string piece_begin(const AnswerHead& head) {
  std::string text = dump(answer_json(head, Json::array(), /*stream=*/true));
  text.resize(text.size() - kPieceEnd.size());
  return text;
}

TextFrame text_frame(const AnswerHead& head, int index, std::string_view piece_end) {
  constexpr std::string_view kText = "\"?\"";  // the text, which occurs only there
  const ToldText told{.index = index, .text = "?", .logprobs = {}, .token_ids = {}, .finish = {}};
  const std::string delta = dump(delta_json(told, head.chat, /*first=*/false));
  const std::size_t at = delta.find(kText);
  std::string behind = delta.substr(at + kText.size());
  behind += piece_end;
  return {piece_begin(head) + delta.substr(0, at), std::move(behind)};
}

Json usage_json(const AnswerUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.reused_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

void add_usage(const AnswerUsage& usage, Json& answer) {
  answer["usage"] = usage_json(usage);
  const double ratio = usage.live_entries > 0 ? static_cast<double>(usage.dense_entries) /
                                                    static_cast<double>(usage.live_entries)
                                              : 1.0;
  answer["winnow"] = {{"kv_bytes", usage.kv_bytes},
                      {"dense_bytes", usage.dense_bytes},
                      {"live_entries", usage.live_entries},
                      {"compression_ratio", ratio}};
}

}  // namespace winnow::server
