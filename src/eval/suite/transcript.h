// The transcript of an agent at work: its tools, calls and results, then a call that needs a value
// from one of these results, or a question about a note.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eval/journal.h"
#include "eval/questions.h"
#include "eval/statistics.h"
#include "eval/suite/dialogue.h"

namespace winnow::eval {

enum class TranscriptEnd : std::uint8_t {
  call,      // that needs a value of a JSON result, up to that value
  question,  // in words, about a note
};

struct TranscriptOptions {
  TranscriptEnd end = TranscriptEnd::call;
  int length = 32768;  // tokens of prompt and answer
  /// The distance of the value from the end, as shares of the length: 0 to 1.
  std::vector<double> distances{0.05, 0.25, 0.5, 0.75, 0.95};
  int repeats = 60;  // transcripts per distance
  int max_tokens = 40;
  std::uint64_t seed = 1;
};

/// Questions "<tool>/<share>/<repeat>": the prompt ends in a call's opening, which the answer goes
/// on with the value, or in a question. Facts: share; tool, that gave the value; values; and
/// distance, the tokens between its result and the prompt's end. Prompts are as long as whole steps
/// allow, or slightly shorter. Error when a few steps do not fit.
std::vector<Question> make_transcripts(const DialogueForm& form, const TranscriptOptions& options);

/// correct: the answer begins with exactly the call's value, which ends there, or contains all
/// values of a note.
Json grade_transcript(const Question& question, const std::string& text);

/// Right answers by distance.
struct AtDistance {
  double share = 0.0;
  double tokens = 0.0;  // mean
  Estimate accuracy;
};
std::vector<AtDistance> by_distance(const Journal& journal, std::span<const Question> questions,
                                    std::span<const double> shares);

}  // namespace winnow::eval
