// OpenAI's answers in JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/request.h"
#include "server/openai/choice.h"
#include "server/openai/completion_request.h"

namespace winnow::server {

/// Common fields of all objects of one answer.
struct AnswerHead {
  std::string id;
  std::int64_t created = 0;  // seconds since 1970
  std::string model;
  bool chat = false;
};

/// Sums over the samples of a request.
struct AnswerUsage {
  int prompt_tokens = 0;
  int completion_tokens = 0;
  int reasoning_tokens = 0;  // of the generated ones
  int reused_tokens = 0;     // prompt tokens found in the cache
  std::int64_t live_entries = 0;
  std::int64_t dense_entries = 0;
  std::size_t kv_bytes = 0;
  std::size_t dense_bytes = 0;

  void add(const engine::CacheUsage& usage);
};

/// "logprobs" of a choice; null when there are none.
nlohmann::ordered_json logprobs_json(std::span<const ScoredToken> tokens,
                                     const Tokenizer& tokenizer, bool chat);

/// "prompt_logprobs" in vLLM's format: by token of the prompt, null for the first.
nlohmann::ordered_json prompt_logprobs_json(std::span<const ScoredToken> tokens,
                                            const Tokenizer& tokenizer);

/// The reported part of an answer: all of it, or one piece.
struct ToldText {
  int index = 0;
  std::string_view text;
  nlohmann::ordered_json logprobs;                           // logprobs_json()
  std::span<const std::int32_t> token_ids;                   // empty: not requested, or none
  engine::FinishReason finish = engine::FinishReason::none;  // none: it continues
  nlohmann::ordered_json tool_calls = {};                    // null: none
  bool called = false;                                       // it ends with tool calls
  std::string_view thought = {};                             // reasoning text
  std::string_view stop = {};                                // the stop string that ended it
};

/// A choice in a whole answer.
nlohmann::ordered_json choice_json(const ToldText& told, bool chat);
/// A choice in a piece of a stream.
nlohmann::ordered_json delta_json(const ToldText& told, bool chat, bool first);

/// {"id", "object", "created", "model", "choices"}; `stream`: a piece of a stream.
nlohmann::ordered_json answer_json(const AnswerHead& head, nlohmann::ordered_json choices,
                                   bool stream);
/// The JSON before the choices, with which every piece of a stream begins: one choice
/// and kPieceEnd complete the piece.
std::string piece_begin(const AnswerHead& head);
inline constexpr std::string_view kPieceEnd = "]}";
/// Used instead when a final piece reports the usage.
inline constexpr std::string_view kPieceEndWithoutUsage = R"(],"usage":null})";
/// The JSON before and after the text, a JSON string, for pieces that contain only text:
/// most pieces, so it is built once.
struct TextFrame {
  std::string before;
  std::string behind;
};
TextFrame text_frame(const AnswerHead& head, int index, std::string_view piece_end = kPieceEnd);
/// The "usage" object of an answer.
nlohmann::ordered_json usage_json(const AnswerUsage& usage);
/// Adds "usage" and "winnow".
void add_usage(const AnswerUsage& usage, nlohmann::ordered_json& answer);

}  // namespace winnow::server
