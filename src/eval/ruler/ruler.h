// RULER (Hsieh et al. 2024): retrieval, tracking and aggregation in long texts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/haystack.h"
#include "eval/questions.h"
#include "eval/ruler/documents.h"
#include "eval/ruler/prompt.h"
#include "eval/ruler/vocabulary.h"

namespace winnow::eval {

/// The material for its prompts.
struct RulerSource {
  Haystack essays;
  Vocabulary vocabulary;
  std::optional<DocumentSet> squad;
  std::optional<DocumentSet> hotpot;
};

/// The part of a RulerSource that a task reads.
enum class RulerReads : std::uint8_t { nothing, text, squad, hotpot };

struct RulerTask {
  std::string name;
  int answer_tokens = 0;  // included in `length`
  /// Answers are scored by the share of the expected strings that they contain, or, if `any` of
  /// them suffices, by whether they contain one.
  bool any = false;
  RulerReads reads = RulerReads::nothing;
  RulerPrompt (*make)(const RulerSource& source, const RulerSample& sample,
                      const EncodeBegun& encode) = nullptr;
};

/// All 13.
std::span<const RulerTask> ruler_tasks();
/// Error that lists all names when the task does not exist.
const RulerTask& find_ruler_task(const std::string& name);

struct RulerOptions {
  std::vector<int> lengths;  // tokens of prompt and answer
  std::vector<std::string> tasks = {};
  int samples = 20;  // per length and task
  std::uint64_t seed = 1;
};

/// Questions "<length>/<task>/<sample>", in this order; facts: length, task, answers. qa_1 and qa_2
/// need their documents in `source`.
std::vector<Question> make_ruler(const RulerSource& source, const EncodeBegun& encode,
                                 const RulerOptions& options);

/// score: RULER's, from 0 to 1, ignoring the case of ASCII letters; correct: the score is 1.
Json grade_ruler(const Question& question, const std::string& text);

}  // namespace winnow::eval
