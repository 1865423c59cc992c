// Prompts with free-form answers: the common part of needles, variables and generated tasks.
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
  std::vector<std::string> stop;            // an answer ends before the first of these
  Json facts = Json::object();              // more facts for the record: expected, depth ...
  std::shared_ptr<const Json> hidden = {};  // further data for the grader: tests of programs
};

/// A grader's result for one answer; it must contain "correct" (true or false).
using Grade = std::function<Json(const Question& question, const std::string& text)>;

struct AnswerOptions {
  int batch = 8;    // questions at the same time
  int samples = 1;  // answers per question, sharing the prompt's cache
  /// For each of these, a record also has `by_width`: {"<width>": {kv_reads, peak_tokens}}, for
  /// that many answers together, averaged over consecutive groups of answers.
  std::vector<int> widths = {};
  SamplingOptions sampling = {};
  /// Called with the questions done; false stops, and the result covers those.
  std::function<bool(std::int64_t)> on_progress = {};
};

/// Answers every question that is not in the journal, with one engine. A record contains the
/// question's facts, `prompt_tokens`, `answers`: [{text, tokens, finish, ...grade}], and for the
/// cache `compression_ratio`, `kv_bytes`, `prompt_reads` (each the mean over answers), `kv_reads`
/// (the sum) and `peak_tokens` (of all answers together, as if they were generated in parallel);
/// reads and tokens are means over layers and KV heads. A question with more tokens than the model
/// has positions has `skipped`: the reason.
void answer_questions(const engine::LoadedModel& model, const Tokenizer& tokenizer,
                      std::span<const Question> questions, const Grade& grade,
                      const AnswerOptions& options, Journal& journal);

/// Over all questions with a record.
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
/// Mean of a number that the grader gave under `key`; count 0 if there is none.
Estimate mean_grade(const Journal& journal, std::span<const Question> questions, const char* key);
/// Without questions, accuracy is null.
Json to_json(const AnswerSummary& summary);

}  // namespace winnow::eval
