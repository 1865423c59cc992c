// Multiple choice by likelihood: which continuation is most likely?
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
  std::string continuation;  // the scored text
};

struct ChoiceQuestion {
  std::string id;
  std::vector<Choice> choices;
  std::size_t answer = 0;
  std::string group;  // MMLU: the subject
};

struct ChoiceOptions {
  int batch = 8;  // questions at the same time
  /// Called with the questions done; false stops, and the result covers those.
  std::function<bool(std::int64_t)> on_progress = {};
};

/// Scores every question that is not in the journal. A record contains `logprobs` (of each
/// continuation, nats), `characters` of each, `answer`, `correct` (most likely), `correct_norm`
/// (most likely per character) and, for the cache at the end of the longest choice, `tokens`,
/// `compression_ratio` and `kv_bytes`; or `skipped`: the reason. The common prefix of choices is
/// computed once. Tokens are those of context and continuation together, split as
/// lm-evaluation-harness does; a context's trailing spaces belong to the continuation.
void score_choices(const engine::LoadedModel& model, const Tokenizer& tokenizer,
                   std::span<const ChoiceQuestion> questions, const ChoiceOptions& options,
                   Journal& journal);

/// The divisor of a choice's likelihood in lm-evaluation-harness's acc_norm: its characters,
/// without the space that joins it to the context; at least 1.
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
