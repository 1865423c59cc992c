// RULER (Hsieh et al. 2024): what a model finds, follows and counts in long texts.
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

/// What its prompts are made of.
struct RulerSource {
  Haystack essays;
  Vocabulary vocabulary;
  std::optional<DocumentSet> squad;
  std::optional<DocumentSet> hotpot;
};

/// What of a RulerSource a task reads.
enum class RulerReads : std::uint8_t { nothing, text, squad, hotpot };

struct RulerTask {
  std::string name;
  int answer_tokens = 0;  // of those of `length`
  /// How answers are scored: by the share of the expected strings that they hold, or, if `any` of
  /// them suffices, by whether they hold one.
  bool any = false;
  RulerReads reads = RulerReads::nothing;
  RulerPrompt (*make)(const RulerSource& source, const RulerSample& sample,
                      const EncodeBegun& encode) = nullptr;
};

/// All 13.
std::span<const RulerTask> ruler_tasks();
/// Error that lists all names when there is no such task.
const RulerTask& find_ruler_task(const std::string& name);

struct RulerOptions {
  std::vector<int> lengths;  // tokens of prompt and answer
  std::vector<std::string> tasks = {};
  int samples = 20;  // per length and task
  std::uint64_t seed = 1;
};

/// Questions "<length>/<task>/<sample>" in this order, facts: length, task, answers. qa_1 and qa_2
/// need their documents in `source`.
std::vector<Question> make_ruler(const RulerSource& source, const EncodeBegun& encode,
                                 const RulerOptions& options);

/// score: RULER's, from 0 to 1, without regard to the case of ASCII letters; correct: it is 1.
Json grade_ruler(const Question& question, const std::string& text);

}  // namespace winnow::eval
