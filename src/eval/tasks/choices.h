// Multiple choice by likelihood: which continuation does the model find most likely?
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/llm_load.h"
#include "eval/journal.h"
#include "eval/statistics.h"
#include "tokenizer/tokenizer.h"

namespace winnow::eval {

struct Choice {
  std::string context;
  std::string continuation;  // what is scored
};

struct ChoiceQuestion {
  std::string id;
  std::vector<Choice> choices;
  std::size_t answer = 0;
  std::string group;  // MMLU: the subject
};

struct ChoiceOptions {
  int batch = 8;  // questions at once
  /// Called with the questions done; false ends the evaluation with what there is.
  std::function<bool(std::int64_t)> on_progress = {};
};

/// Scores every question that the journal does not have. A record holds `logprobs` (of each
/// continuation, nats), `characters` of each, `answer`, `correct` (most likely), `correct_norm`
/// (most likely per character) and of the cache at the end of the longest choice `tokens`,
/// `compression_ratio` and `kv_bytes`; or `skipped`: why. What choices begin with alike is computed
/// once and shared. Tokens are those of context and continuation together, as lm-evaluation-harness
/// cuts them; a context's last spaces belong to the continuation.
void score_choices(const engine::LoadedModel& model, const Tokenizer& tokenizer,
                   std::span<const ChoiceQuestion> questions, const ChoiceOptions& options,
                   Journal& journal);

/// What lm-evaluation-harness's acc_norm divides a choice's likelihood by: its characters, without
/// the space that joins it to the context; at least 1.
std::size_t choice_characters(std::string_view continuation);

struct ChoiceSummary {
  std::int64_t questions = 0;
  std::int64_t skipped = 0;
  Estimate accuracy;
  Estimate accuracy_norm;
  double compression_ratio = 1.0;
  double kv_bytes = 0.0;
};
ChoiceSummary summarize_choices(const Journal& journal, std::span<const ChoiceQuestion> questions);
Json to_json(const ChoiceSummary& summary);

}  // namespace winnow::eval
