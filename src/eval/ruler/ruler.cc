#include "eval/ruler/ruler.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

#include "base/error.h"
#include "eval/ruler/niah.h"
#include "eval/ruler/tracking.h"
#include "eval/ruler/word_lists.h"

namespace winnow::eval {
namespace {

template <NiahForm form>
RulerTask niah_task(const char* name) {
  return {name, 128, false, form.reads_text() ? RulerReads::text : RulerReads::nothing,
          [](const RulerSource& source, const RulerSample& sample, const EncodeBegun& encode) {
            return make_niah(form, source.essays, source.vocabulary, sample, encode);
          }};
}

RulerPrompt tracking(const RulerSource& /*source*/, const RulerSample& sample,
                     const EncodeBegun& encode) {
  return make_tracking(sample, encode);
}

RulerPrompt common_words(const RulerSource& source, const RulerSample& sample,
                         const EncodeBegun& encode) {
  return make_common_words(source.vocabulary, sample, encode);
}

RulerPrompt frequent_words(const RulerSource& /*source*/, const RulerSample& sample,
                           const EncodeBegun& encode) {
  return make_frequent_words(sample, encode);
}

template <std::optional<DocumentSet> RulerSource::*set>
RulerPrompt document_question(const RulerSource& source, const RulerSample& sample,
                              const EncodeBegun& encode) {
  return make_document_question((source.*set).value(), sample, encode);
}

const std::array<RulerTask, 13> kRulerTasks{{
    niah_task<NiahForm{.hay = NiahHay::noise}>("niah_single_1"),
    niah_task<NiahForm{}>("niah_single_2"),
    niah_task<NiahForm{.value = NiahWord::uuids}>("niah_single_3"),
    niah_task<NiahForm{.keys = 4}>("niah_multikey_1"),
    niah_task<NiahForm{.hay = NiahHay::needles}>("niah_multikey_2"),
    niah_task<NiahForm{.hay = NiahHay::needles, .key = NiahWord::uuids, .value = NiahWord::uuids}>(
        "niah_multikey_3"),
    niah_task<NiahForm{.values = 4}>("niah_multivalue"),
    niah_task<NiahForm{.keys = 4, .queries = 4}>("niah_multiquery"),
    {"vt", 30, false, RulerReads::nothing, tracking},
    {"cwe", 120, false, RulerReads::text, common_words},
    {"fwe", 50, false, RulerReads::nothing, frequent_words},
    {"qa_1", 32, true, RulerReads::squad, document_question<&RulerSource::squad>},
    {"qa_2", 32, true, RulerReads::hotpot, document_question<&RulerSource::hotpot>},
}};

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return text;
}

Question make_question(const RulerTask& task, const RulerSource& source, const EncodeBegun& encode,
                       const RulerSample& sample) {
  RulerPrompt prompt = task.make(source, sample, encode);
  Question question;
  question.id = fmt::format("{}/{}/{}", sample.length, task.name, sample.index);
  question.prompt = std::move(prompt.tokens);
  question.max_tokens = task.answer_tokens;
  question.facts = {
      {"length", sample.length}, {"task", task.name}, {"answers", std::move(prompt.answers)}};
  return question;
}

}  // namespace

std::span<const RulerTask> ruler_tasks() {
  return kRulerTasks;
}

const RulerTask& find_ruler_task(const std::string& name) {
  const auto found = std::ranges::find(kRulerTasks, name, &RulerTask::name);
  if (found == kRulerTasks.end()) {
    std::vector<std::string> names;
    std::ranges::transform(kRulerTasks, std::back_inserter(names), &RulerTask::name);
    fail("--tasks {}: expected {}", name, fmt::join(names, ", "));
  }
  return *found;
}

std::vector<Question> make_ruler(const RulerSource& source, const EncodeBegun& encode,
                                 const RulerOptions& options) {
  require(!options.lengths.empty(), "--lengths: at least one is needed");
  for (std::size_t i = 0; i < options.lengths.size(); ++i) {
    require(std::ranges::count(options.lengths, options.lengths[i]) == 1,
            "--lengths {}: given twice", options.lengths[i]);
  }
  require(options.samples >= 1, "--samples {}: at least 1 is needed", options.samples);
  std::vector<Question> questions;
  for (const int length : options.lengths) {
    for (const std::string& name : options.tasks) {
      const RulerTask& task = find_ruler_task(name);
      const auto number = static_cast<std::uint64_t>(&task - kRulerTasks.data());
      for (int i = 0; i < options.samples; ++i) {
        // The same prompts for every setting of the other options.
        const Random random(options.seed, mix64(static_cast<std::uint64_t>(length) << 8 | number) +
                                              static_cast<std::uint64_t>(i));
        questions.push_back(
            make_question(task, source, encode, {length, length - task.answer_tokens, i, random}));
      }
    }
  }
  return questions;
}

Json grade_ruler(const Question& question, const std::string& text) {
  const RulerTask& task = find_ruler_task(question.facts.at("task").get_ref<const std::string&>());
  const auto answers = question.facts.at("answers").get<std::vector<std::string>>();
  const std::string given = lower_case(text);
  const auto held = std::ranges::count_if(answers, [&given](const std::string& answer) {
    return given.find(lower_case(answer)) != std::string::npos;
  });
  const double share = static_cast<double>(held) / static_cast<double>(answers.size());
  const double score = task.any ? (held > 0 ? 1.0 : 0.0) : share;
  return {{"correct", score == 1.0}, {"score", score}};
}

}  // namespace winnow::eval
