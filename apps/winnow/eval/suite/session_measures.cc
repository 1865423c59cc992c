// What a chat and an agent's transcript keep in the cache.
#include <algorithm>

#include "apps/winnow/eval/suite/measures.h"
#include "apps/winnow/interrupt.h"
#include "apps/winnow/output.h"
#include "eval/needle.h"
#include "eval/suite/sessions.h"
#include "eval/suite/transcript.h"
#include "tokenizer/chat_template.h"

namespace winnow::cli {
namespace {

Json record_of(const eval::SessionAnswers& answers) {
  return {{"tokens", answers.straight.size()},
          {"resumed_same", answers.resumed == answers.straight},
          {"forked_same", answers.forked == answers.straight}};
}

// Sessions of one model, counted by result.
struct SessionCounts {
  int all = 0;
  int resumed_differ = 0;
  int forked_differ = 0;
  int differ = 0;  // in either way

  void add(const Json& record) {
    const bool resumed = record.at("resumed_same").get<bool>();
    const bool forked = record.at("forked_same").get<bool>();
    ++all;
    resumed_differ += resumed ? 0 : 1;
    forked_differ += forked ? 0 : 1;
    differ += resumed && forked ? 0 : 1;
  }
};

Json to_json(const SessionCounts& counts) {
  return {{"sessions", counts.all},
          {"resumed_differ", counts.resumed_differ},
          {"forked_differ", counts.forked_differ}};
}

}  // namespace

eval::DialogueForm SuiteMeasures::dialogue_form() {
  if (!ChatTemplate::load(student_path_)) {
    return eval::plain_dialogue(run_.encoder());
  }
  return {.encode = run_.template_encoder(), .stop = {}};
}

SuiteMeasures::Rows SuiteMeasures::memory() {
  const auto form = dialogue_form();
  std::vector<eval::Question> questions;
  for (const eval::Conversation& conversation : asked_.conversations) {
    questions.push_back(conversation.question);
  }
  const auto answers = ask("memory", questions, eval::grade_needle);
  const std::string through =
      form.stop.empty() ? "the model's chat template" : "plain text: the model has no template";
  Rows rows{answers_row({.id = "memory",
                         .title = "Memory over turns",
                         .what = fmt::format("A fact that the user told {} turns before asking for "
                                             "it, through {}.",
                                             flags_.turns, through),
                         .sample = "conversations"},
                        answers)};
  if (!interrupted()) {
    rows.push_back(sessions());
  }
  return rows;
}

eval::SuiteRow SuiteMeasures::sessions() {
  const auto form = dialogue_form();
  const auto& conversations = asked_.conversations;
  const std::size_t count =
      std::min(conversations.size(), static_cast<std::size_t>(plan_.sessions));
  SessionCounts counts[2];
  for (const bool of_student : {false, true}) {
    const auto progress =
        run_.progress(static_cast<std::int64_t>(count),
                      fmt::format("sessions, {}", of_student ? "student" : "base"));
    eval::Journal journal = section("sessions", of_student);
    const engine::LoadedModel& model = of_student ? run_.model() : base_;
    for (std::size_t i = 0; i < count && progress(static_cast<std::int64_t>(i)); ++i) {
      const eval::Question& question = conversations[i].question;
      if (journal.find(question.id) == nullptr) {
        journal.add(question.id,
                    record_of(eval::answer_in_sessions(model, question.prompt,
                                                       eval::turn_ends(conversations[i], form),
                                                       question.max_tokens)));
      }
      counts[of_student ? 1 : 0].add(*journal.find(question.id));
    }
  }
  eval::SuiteRow row{.id = "sessions",
                     .title = "Sessions go on exactly",
                     .what =
                         "The same conversations straight through, saved and resumed after "
                         "every turn, and after a fork: three times the same tokens?",
                     .criterion = "none differs",
                     .kind = eval::SuiteRow::Kind::exactness,
                     .unit = "differ",
                     .loss_unit = "sessions",
                     .sample = "conversations",
                     .digits = 0,
                     .more_is_better = false,
                     .base = counts[0].differ,
                     .student = counts[1].differ};
  const int differ = counts[0].differ + counts[1].differ;
  row.count = counts[1].all;
  row.loss = {.mean = static_cast<double>(counts[1].differ - counts[0].differ), .count = row.count};
  row.interval = {row.loss.mean, row.loss.mean};  // exact: there is no estimate
  row.verdict = row.count == 0 ? eval::Verdict::undecided
                : differ == 0  ? eval::Verdict::holds
                               : eval::Verdict::loses;
  row.details = {{"base", to_json(counts[0])}, {"student", to_json(counts[1])}};
  return row;
}

SuiteMeasures::Rows SuiteMeasures::transcript() {
  Rows rows{transcript_row({.id = "transcript",
                            .title = "An agent's transcript",
                            .what = "Tools, calls and results (JSON, logs, listings) of {} tokens, "
                                    "then a question about a note that was read on the way.",
                            .sample = "transcripts"},
                           asked_.notes)};
  if (!interrupted()) {
    rows.push_back(
        transcript_row({.id = "calls",
                        .title = "An agent's next call",
                        .what = "Such transcripts of {} tokens that end in a call up to an id, a "
                                "path or a port, which an earlier result states.",
                        .sample = "transcripts"},
                       asked_.calls));
  }
  return rows;
}

eval::SuiteRow SuiteMeasures::transcript_row(eval::SuiteRow row, const Transcripts& asked) {
  const auto& [options, questions] = asked;
  row.what = fmt::format(fmt::runtime(row.what), grouped(options.length));
  const std::string id = row.id;
  row = answers_row(std::move(row), ask(id, questions, eval::grade_transcript));
  if (options.length < flags_.transcript) {
    row.note += fmt::format("{}{} tokens were asked for: the models have fewer positions.",
                            row.note.empty() ? "" : " ", grouped(flags_.transcript));
  }
  const auto shares = std::span<const double>(options.distances);
  const auto of_base = eval::by_distance(section(id, false), questions, shares);
  const auto of_student = eval::by_distance(section(id, true), questions, shares);
  for (std::size_t i = 0; i < of_base.size(); ++i) {
    row.details["by_distance"].push_back({{"tokens", of_base[i].tokens},
                                          {"base", of_base[i].accuracy.mean},
                                          {"base_error", of_base[i].accuracy.error},
                                          {"student", of_student[i].accuracy.mean},
                                          {"student_error", of_student[i].accuracy.error}});
  }
  return row;
}

}  // namespace winnow::cli
