// OpenAI's answers as JSON.
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

/// What all objects of one answer have in common.
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
  int reasoning_tokens = 0;  // of those
  int reused_tokens = 0;     // of the prompts, found in the cache
  std::int64_t live_entries = 0;
  std::int64_t dense_entries = 0;
  std::size_t kv_bytes = 0;
  std::size_t dense_bytes = 0;

  void add(const engine::CacheUsage& usage);
};

/// "logprobs" of a choice; null when there are none.
nlohmann::ordered_json logprobs_json(std::span<const ScoredToken> tokens,
                                     const Tokenizer& tokenizer, bool chat);

/// "prompt_logprobs" as vLLM tells them: by token of the prompt, null for the first.
nlohmann::ordered_json prompt_logprobs_json(std::span<const ScoredToken> tokens,
                                            const Tokenizer& tokenizer);

/// What is told of an answer: of all of it, or of a piece of it.
struct ToldText {
  int index = 0;
  std::string_view text;
  nlohmann::ordered_json logprobs;                           // logprobs_json()
  std::span<const std::int32_t> token_ids;                   // empty: not asked for, or none
  engine::FinishReason finish = engine::FinishReason::none;  // none: it goes on
  nlohmann::ordered_json tool_calls = {};                    // null: none
  bool called = false;                                       // it ends with such
  std::string_view thought = {};                             // of reasoning
  std::string_view stop = {};                                // the stop string that ended it
};

/// A choice of a whole answer.
nlohmann::ordered_json choice_json(const ToldText& told, bool chat);
/// A choice of a piece of a stream.
nlohmann::ordered_json delta_json(const ToldText& told, bool chat, bool first);

/// {"id", "object", "created", "model", "choices"}; `stream`: a piece of one.
nlohmann::ordered_json answer_json(const AnswerHead& head, nlohmann::ordered_json choices,
                                   bool stream);
/// The text of a stream's pieces up to their choices, which all of them begin with: one choice
/// and kPieceEnd make it whole.
std::string piece_begin(const AnswerHead& head);
inline constexpr std::string_view kPieceEnd = "]}";
/// In its place where a last piece will tell the usage.
inline constexpr std::string_view kPieceEndWithoutUsage = R"(],"usage":null})";
/// What is before and behind the text, a JSON string, of the pieces that say no more than that:
/// most of them, so they are not made anew.
struct TextFrame {
  std::string before;
  std::string behind;
};
TextFrame text_frame(const AnswerHead& head, int index, std::string_view piece_end = kPieceEnd);
/// "usage" of an answer.
nlohmann::ordered_json usage_json(const AnswerUsage& usage);
/// Adds "usage" and "winnow".
void add_usage(const AnswerUsage& usage, nlohmann::ordered_json& answer);

}  // namespace winnow::server
