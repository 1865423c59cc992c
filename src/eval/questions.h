// Prompts that a model answers in its own words: what needles, variables and generated tasks share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/llm_load.h"
#include "engine/request.h"
#include "eval/journal.h"
#include "eval/statistics.h"
#include "tokenizer/tokenizer.h"

namespace winnow::eval {

struct Question {
  std::string id;
  std::vector<std::int32_t> prompt;
  int max_tokens = 64;
  std::vector<std::string> stop;  // an answer ends before the first of these
  Json facts = Json::object();    // what else is to stand in the record: expected, depth ...
  std::shared_ptr<const Json> hidden = {};  // what the grader needs besides: tests of programs
};

/// What a grader says of one answer; "correct" (true or false) has to be in it.
using Grade = std::function<Json(const Question& question, const std::string& text)>;

struct AnswerOptions {
  int batch = 8;    // questions at once
  int samples = 1;  // answers per question, sharing the prompt's cache
  /// For each of these a record also has `by_width`: {"<width>": {kv_reads, peak_tokens}}, of that
  /// many answers together, averaged over groups of them one after another.
  std::vector<int> widths = {};
  SamplingOptions sampling = {};
  /// Called with the questions done; false ends the evaluation with what there is.
  std::function<bool(std::int64_t)> on_progress = {};
};

/// Answers every question that the journal does not have, through one engine. A record holds the
/// question's facts, `prompt_tokens`, `answers`: [{text, tokens, finish, ...grade}], and of the
/// cache `compression_ratio`, `kv_bytes`, `prompt_reads` (each the mean over answers), `kv_reads`
/// (the sum) and `peak_tokens` (of all answers together, as if they were written side by side);
/// reads and tokens are means over layers and KV heads. A question for which the model has too few
/// positions has `skipped`: why.
void answer_questions(const engine::LoadedModel& model, const Tokenizer& tokenizer,
                      std::span<const Question> questions, const Grade& grade,
                      const AnswerOptions& options, Journal& journal);

/// Of all questions with a record.
struct AnswerSummary {
  std::int64_t questions = 0;  // with answers
  std::int64_t skipped = 0;
  Estimate accuracy;  // share of correct answers, question by question
  double prompt_tokens = 0.0;
  double compression_ratio = 1.0;
  double kv_bytes = 0.0;
  double kv_reads = 0.0;
  double prompt_reads = 0.0;
  double peak_tokens = 0.0;
};
AnswerSummary summarize_answers(const Journal& journal, std::span<const Question> questions);
/// Mean of a number that the grader gave under `key`; of no values when it gave none.
Estimate mean_grade(const Journal& journal, std::span<const Question> questions, const char* key);
/// Without questions there is no accuracy: null.
Json to_json(const AnswerSummary& summary);

}  // namespace winnow::eval
