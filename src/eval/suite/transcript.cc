#include "eval/suite/transcript.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "checkpoint/json_text.h"
#include "eval/suite/tool_results.h"

namespace winnow::eval {
namespace {

constexpr int kLeastSteps = 3;

std::string call(const ToolStep& step) {
  return json_text(Json{{"tool", step.tool}, {"arguments", step.arguments}});
}

// A chat with the steps, each a call and its result, that ends with the question.
Messages chat_of(std::span<const ToolStep> steps, const std::string& question) {
  Messages messages{{"user",
                     "Look over the servers with the tools list_files, run, read_note and "
                     "get_json, one call at a time. I will ask you about them afterwards."}};
  for (const ToolStep& step : steps) {
    messages.push_back({"assistant", call(step)});
    messages.push_back({"user", "Result of " + step.tool + ":\n" + step.result});
  }
  messages.push_back({"assistant", "I have looked at all of them."});
  messages.push_back({"user", question});
  return messages;
}

// Some of them are notes, too, with facts of other kinds than `kind`: no two answer one question.
std::vector<ToolStep> draw_steps(std::size_t count, int kind, Random random) {
  constexpr int kOneNoteIn = 8;
  std::vector<ToolStep> steps;
  for (std::size_t i = 0; i < count; ++i) {
    const bool notes = draw(random, 0, kOneNoteIn) == 0;
    steps.push_back(
        notes ? note_of(make_fact(kind + draw(random, 1, kFactKinds), random).sentence, random)
              : draw_tool_step(random));
  }
  return steps;
}

// The fact's own step, the steps around it, and its position.
class Draft {
 public:
  Draft(const DialogueForm& form, int kind, double share, const Random& random)
      : form_(form), kind_(kind), share_(share), random_(random), fact_(make_fact(kind, random_)) {}

  [[nodiscard]] const Fact& fact() const { return fact_; }

  [[nodiscard]] std::vector<std::int32_t> prompt(std::size_t steps) const {
    return form_.encode(chat_of(with_fact(steps), fact_.question));
  }

  // Tokens from the end of the fact's result to the end of a prompt of `size` tokens.
  [[nodiscard]] std::size_t distance(std::size_t steps, std::size_t size) const {
    const auto all = with_fact(steps);
    const Messages messages = chat_of(std::span(all).first(place(steps) + 1), fact_.question);
    const auto until = form_.encode(std::span(messages).first(messages.size() - 2));
    return size - std::min(size, until.size());
  }

  // The number of steps that fills `length` tokens.
  [[nodiscard]] std::size_t fitting(std::size_t length) const {
    constexpr int kTries = 8;
    constexpr std::size_t kProbe = 8;
    std::size_t fits = 0;
    std::size_t steps = kProbe;
    for (int i = 0; i < kTries && steps > 0; ++i) {
      const std::size_t size = prompt(steps).size();
      const std::size_t each = size / steps;
      if (size > length) {
        steps -= std::min(steps, (size - length) / each + 1);
        continue;
      }
      fits = std::max(fits, steps);
      if (length - size < each) {
        break;
      }
      steps += (length - size) / each;
    }
    return fits;
  }

 private:
  // The position of the fact among `steps` other steps.
  [[nodiscard]] std::size_t place(std::size_t steps) const {
    return static_cast<std::size_t>(std::lround((1.0 - share_) * static_cast<double>(steps)));
  }

  [[nodiscard]] std::vector<ToolStep> with_fact(std::size_t steps) const {
    Random random = random_;
    const ToolStep note = note_of(fact_.sentence, random);
    auto all = draw_steps(steps, kind_, random);
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(place(steps)), note);
    return all;
  }

  const DialogueForm& form_;
  int kind_;
  double share_;
  Random random_;
  Fact fact_;  // drawn with random_
};

Question make_transcript(const DialogueForm& form, const TranscriptOptions& options, double share,
                         int repeat) {
  const Random random(
      options.seed, mix64(static_cast<std::uint64_t>(std::lround(share * 1e6)) << 20 | 0xA6E47ULL) +
                        static_cast<std::uint64_t>(repeat));
  const Draft draft(form, repeat % kFactKinds, share, random);
  const auto length = static_cast<std::size_t>(std::max(0, options.length - options.max_tokens));
  const std::size_t steps = draft.fitting(length);
  require(steps >= kLeastSteps, "--transcript {}: has no room for {} steps of an agent",
          options.length, kLeastSteps);
  Question question;
  question.id = fmt::format("{}/{}", share, repeat);
  question.prompt = draft.prompt(steps);
  question.max_tokens = options.max_tokens;
  question.stop = form.stop;
  question.facts = {{"share", share},
                    {"distance", draft.distance(steps, question.prompt.size())},
                    {"expected", draft.fact().sentence},
                    {"values", draft.fact().values}};
  return question;
}

}  // namespace

std::vector<Question> make_transcripts(const DialogueForm& form, const TranscriptOptions& options) {
  std::vector<Question> questions;
  for (const double share : options.distances) {
    require(share >= 0.0 && share <= 1.0, "distance {}: expected a share from 0 to 1", share);
    for (int repeat = 0; repeat < options.repeats; ++repeat) {
      questions.push_back(make_transcript(form, options, share, repeat));
    }
  }
  return questions;
}

std::vector<AtDistance> by_distance(const Journal& journal, std::span<const Question> questions,
                                    std::span<const double> shares) {
  std::vector<AtDistance> result;
  for (const double share : shares) {
    Mean tokens;
    Mean correct;
    for (const Question& question : questions) {
      const Json* record = journal.find(question.id);
      if (question.facts.at("share") == share && record != nullptr && record->contains("answers")) {
        tokens.add(question.facts.at("distance").get<double>());
        correct.add(record->at("answers").at(0).at("correct").get<bool>() ? 1.0 : 0.0);
      }
    }
    result.push_back({share, tokens.mean(), correct.estimate()});
  }
  return result;
}

}  // namespace winnow::eval
