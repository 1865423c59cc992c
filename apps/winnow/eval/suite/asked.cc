// What the suite's rows ask, made before the first is measured: what does not fit is known at once.
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "apps/winnow/eval/suite/measures.h"
#include "base/error.h"
#include "eval/does_not_fit.h"
#include "eval/needle.h"
#include "eval/tasks/text_tasks.h"
#include "eval/variables.h"

namespace winnow::cli {
namespace {

constexpr int kLeastLength = 256;  // of a text with something hidden in it, and an answer
constexpr double kLengthShares[] = {0.25, 0.5, 1.0};

// At least one each.
int each_of(int samples, std::size_t kinds) {
  const auto count = static_cast<int>(kinds);
  return std::max(1, (samples + count - 1) / count);
}

// Names the rows that remain, as a flag to pass.
std::string without(const std::vector<std::string>& remaining) {
  return remaining.empty()
             ? ""
             : fmt::format("; measure the others with --rows {}", fmt::join(remaining, ","));
}

}  // namespace

void SuiteMeasures::prepare() {
  std::vector<std::string> too_long;
  std::vector<std::string> remaining;
  for (const std::string_view row : kSuiteRows) {
    const std::string name(row);
    if (!wants_row(flags_, name)) {
      continue;
    }
    try {
      prepare_row(name);
      if (name != "task" || !flags_.task.task.empty()) {
        remaining.push_back(name);
      }
    } catch (const eval::DoesNotFit& error) {
      too_long.push_back(fmt::format("{} ({})", name, error.what()));
    }
  }
  require(too_long.empty(), "too short, by their flags or the models' {} positions: {}{}",
          positions_, fmt::join(too_long, ", "), without(remaining));
}

void SuiteMeasures::prepare_row(const std::string& row) {
  if (row == "needle") {
    eval::NeedleOptions options{.lengths = lengths(), .depths = {0.0, 0.25, 0.5, 0.75, 1.0}};
    options.repeats = each_of(plan_.samples, options.lengths.size() * options.depths.size());
    options.seed = flags_.seed;
    asked_.needles = eval::make_needles(*hay_, run_.encoder(), options);
    require_positions(asked_.needles);
  } else if (row == "variables") {
    eval::VariablesOptions options{.lengths = lengths(),
                                   .chains = 3,
                                   .hops = 2,
                                   .max_tokens = 80,
                                   .style = "plain",
                                   .seed = flags_.seed};
    options.repeats = each_of(plan_.samples, options.lengths.size());
    asked_.variables = eval::make_variables(*hay_, run_.encoder(), options);
    require_positions(asked_.variables);
  } else if (row == "memory") {
    asked_.conversations = eval::make_conversations(*hay_, dialogue_form(),
                                                    {.conversations = plan_.samples,
                                                     .turns = flags_.turns,
                                                     .longest = positions_,
                                                     .seed = flags_.seed});
  } else if (row == "transcript") {
    asked_.notes = make_transcripts(eval::TranscriptEnd::question);
    asked_.calls = make_transcripts(eval::TranscriptEnd::call);
  } else if (row == "task" && !flags_.task.task.empty()) {
    // Of a file's questions single ones may be too long: these are skipped.
    const TaskData data = read_task_data(flags_.task);
    asked_.task = eval::load_questions(
        *eval::find_text_task(flags_.task.task), data.lines, data.shots,
        {.shots = flags_.task.shots, .chat = run_.chat_encoder()}, run_.encoder());
  } else if (row == "cost") {
    eval::require_fit(positions_ > plan_.steps, "{} tokens are generated", plan_.steps);
  }
}

void SuiteMeasures::require_positions(std::span<const eval::Question> questions) const {
  for (const eval::Question& question : questions) {
    const std::size_t tokens =
        question.prompt.size() + static_cast<std::size_t>(question.max_tokens);
    eval::require_fit(tokens <= static_cast<std::size_t>(positions_),
                      "a question and its answer take {} tokens", tokens);
  }
}

SuiteMeasures::Transcripts SuiteMeasures::make_transcripts(eval::TranscriptEnd end) {
  Transcripts asked{.options = {.end = end, .length = plan_.transcript, .seed = flags_.seed},
                    .questions = {}};
  asked.options.repeats = each_of(plan_.samples, asked.options.distances.size());
  asked.questions = eval::make_transcripts(dialogue_form(), asked.options);
  return asked;
}

std::vector<int> SuiteMeasures::lengths() const {
  std::vector<int> lengths;
  for (const double share : kLengthShares) {
    const int length = std::max(kLeastLength, static_cast<int>(share * plan_.context));
    if (lengths.empty() || length > lengths.back()) {
      lengths.push_back(length);
    }
  }
  return lengths;
}

}  // namespace winnow::cli
