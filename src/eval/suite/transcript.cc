#include "eval/suite/transcript.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "eval/does_not_fit.h"
#include "eval/facts.h"
#include "eval/suite/tool_results.h"

namespace winnow::eval {
namespace {

constexpr int kLeastSteps = 3;

// A chat with the steps, each a call and its result, that ends in the opening of the errand's call.
Messages chat_of(bool takes_system, std::span<const ToolStep> steps, const Errand& errand) {
  const std::string task = "Look after the servers. I will tell you what to do.";
  Messages messages;
  if (takes_system) {
    messages = {{"system", agent_instructions()}, {"user", task}};
  } else {
    messages = {{"user", agent_instructions() + "\n\n" + task}};
  }
  for (const ToolStep& step : steps) {
    messages.push_back({"assistant", call_text(step)});
    messages.push_back({"user", "Result of " + step.tool + ":\n" + step.result});
  }
  messages.push_back({"assistant", "What shall I do next?"});
  messages.push_back({"user", errand.request});
  if (!errand.opening.empty()) {
    messages.push_back({"assistant", errand.opening});
  }
  return messages;
}

// Some of them are other errands, each with the call that needs its value: an example of the form.
std::vector<ToolStep> draw_steps(std::size_t count, const std::string& subject, Random random) {
  constexpr int kOneErrandIn = 6;
  constexpr int kOneNoteIn = 3;  // of these
  std::vector<ToolStep> steps;
  while (steps.size() < count) {
    if (draw(random, 0, kOneErrandIn) != 0) {
      steps.push_back(draw_tool_step(random));
      continue;
    }
    Errand other = draw(random, 0, kOneNoteIn) == 0
                       ? make_note(draw(random, 0, kFactKinds), random)
                       : make_call(draw(random, 0, kCallKinds), random);
    if (other.subject == subject) {
      continue;
    }
    steps.push_back(std::move(other.step));
    if (!other.needs.tool.empty()) {
      steps.push_back(std::move(other.needs));
    }
  }
  steps.resize(count);
  return steps;
}

// Some templates refuse a system message.
bool has_system_role(const DialogueForm& form) {
  try {
    (void)form.encode(Messages{{"system", "Be brief."}, {"user", "Hello."}});
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The errand's own step, the steps around it, and its position.
class Draft {
 public:
  Draft(const DialogueForm& form, bool takes_system, TranscriptEnd end, int index, double share,
        const Random& random)
      : form_(form),
        takes_system_(takes_system),
        share_(share),
        random_(random),
        errand_(end == TranscriptEnd::call ? make_call(index, random_)
                                           : make_note(index, random_)) {}

  [[nodiscard]] const Errand& errand() const { return errand_; }

  [[nodiscard]] std::vector<std::int32_t> prompt(std::size_t steps) const {
    return form_.encode(chat_of(takes_system_, with_errand(steps), errand_));
  }

  // Tokens from the end of the errand's result to the end of a prompt of `size` tokens.
  [[nodiscard]] std::size_t distance(std::size_t steps, std::size_t size) const {
    const std::size_t after_steps = errand_.opening.empty() ? 2 : 3;  // messages
    const auto all = with_errand(steps);
    const Messages messages =
        chat_of(takes_system_, std::span(all).first(place(steps) + 1), errand_);
    const auto until = form_.encode(std::span(messages).first(messages.size() - after_steps));
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
  // The position of the errand among `steps` other steps.
  [[nodiscard]] std::size_t place(std::size_t steps) const {
    return static_cast<std::size_t>(std::lround((1.0 - share_) * static_cast<double>(steps)));
  }

  [[nodiscard]] std::vector<ToolStep> with_errand(std::size_t steps) const {
    auto all = draw_steps(steps, errand_.subject, random_);
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(place(steps)), errand_.step);
    return all;
  }

  const DialogueForm& form_;
  bool takes_system_;
  double share_;
  Random random_;
  Errand errand_;  // drawn with random_
};

Question make_transcript(const DialogueForm& form, bool takes_system,
                         const TranscriptOptions& options, double share, int repeat) {
  const Random random(
      options.seed, mix64(static_cast<std::uint64_t>(std::lround(share * 1e6)) << 20 | 0xA6E47ULL) +
                        static_cast<std::uint64_t>(repeat));
  const Draft draft(form, takes_system, options.end, repeat, share, random);
  const auto length = static_cast<std::size_t>(std::max(0, options.length - options.max_tokens));
  const std::size_t steps = draft.fitting(length);
  require_fit(steps >= kLeastSteps, "--transcript {}: has no room for {} steps of an agent",
              options.length, kLeastSteps);
  const Errand& errand = draft.errand();
  Question question;
  question.id = fmt::format("{}/{}/{}", errand.step.tool, share, repeat);
  question.prompt = draft.prompt(steps);
  question.max_tokens = options.max_tokens;
  question.stop = form.stop;
  if (!errand.opening.empty()) {
    question.stop.insert(question.stop.end(), {"\"", "}"});
  }
  question.facts = {{"share", share},
                    {"distance", draft.distance(steps, question.prompt.size())},
                    {"tool", errand.step.tool},
                    {"values", errand.values}};
  return question;
}

}  // namespace

std::vector<Question> make_transcripts(const DialogueForm& form, const TranscriptOptions& options) {
  const bool takes_system = has_system_role(form);
  std::vector<Question> questions;
  for (const double share : options.distances) {
    require(share >= 0.0 && share <= 1.0, "distance {}: expected a share from 0 to 1", share);
    for (int repeat = 0; repeat < options.repeats; ++repeat) {
      questions.push_back(make_transcript(form, takes_system, options, share, repeat));
    }
  }
  return questions;
}

Json grade_transcript(const Question& question, const std::string& text) {
  const Json& values = question.facts.at("values");
  if (question.facts.at("tool") == "read_note") {
    const bool correct = std::ranges::all_of(
        values, [&](const Json& value) { return holds_word(text, value.get<std::string>()); });
    return {{"correct", correct}};
  }
  const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
  const std::size_t end = std::min(text.find_first_of("\",} \n", begin), text.size());
  return {{"correct", text.substr(begin, end - begin) == values.at(0).get<std::string>()}};
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
