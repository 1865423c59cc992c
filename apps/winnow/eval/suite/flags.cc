#include "apps/winnow/eval/suite/flags.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "apps/winnow/eval/reference.h"
#include "apps/winnow/flag_group.h"
#include "apps/winnow/model_names.h"
#include "apps/winnow/output.h"
#include "base/error.h"
#include "base/sha256.h"
#include "eval/suite/manual_text.h"
#include "eval/tasks/text_tasks.h"

namespace winnow::cli {
namespace {

constexpr int kLeastTranscript = 1536;  // by default: the tools and a few steps

std::string digest_of_text(const std::string& text) {
  Sha256 digest;
  digest.update(text);
  return digest.finish();
}

}  // namespace

void add_suite_flags(CLI::App& command, SuiteFlags& flags) {
  const FlagGroup own(command);
  own.open_option("--compressed", flags.compressed, kModelType,
                  "The student (default: the model itself, under --cache, --probe or --kv-dtype)");
  own.open_option("--text", flags.texts, "FILE",
                  "A text for both models, that they were not trained on; may be given several "
                  "times, the first is also the hay of needles (default: winnow's manual)")
      ->allow_extra_args(false);
  own.open_option(
         "--rows", flags.rows, "ROW,...",
         fmt::format("Only these, joined by commas: {} (default: all)", fmt::join(kSuiteRows, ",")))
      ->delimiter(',');
  own.flag("--quick", flags.quick, "Smaller samples: minutes for a small model (default: off)");
  own.open_option("--samples", flags.samples, "N",
                  "Questions of each row that asks some (default: 300, --quick 40)");
  own.open_option("--context", flags.context, "N",
                  "Tokens of windows of text and of the longest needle, at most the models' "
                  "positions (default: 8192, --quick 2048)");
  own.open_option("--transcript", flags.transcript, "N",
                  "Tokens of an agent's transcript, at most the models' positions: 32768 for long "
                  "ones (default: as --context, but at least 1536)");
  own.option("--turns", flags.turns, "N", "Turns between a fact and the question for it");
  own.open_option("--html", flags.html, "FILE",
                  "The report (default: suite.html, or as --out with .html)");
  add_task_data_flags(command, flags.task, /*optional=*/true);
  add_chat_flag(command, flags);
  add_eval_flags(command, flags);
}

void check_suite(const SuiteFlags& flags) {
  for (const std::string& row : flags.rows) {
    require(std::ranges::find(kSuiteRows, row) != kSuiteRows.end(),
            "--rows {}: expected some of {}", row, fmt::join(kSuiteRows, ", "));
  }
  require(flags.turns >= 0 && flags.turns <= 1000, "--turns {}: expected 0 to 1000", flags.turns);
  require(flags.samples >= 0, "--samples {}: expected 1 or more", flags.samples);
  require(flags.context >= 0, "--context {}: expected 1 or more", flags.context);
  require(flags.transcript >= 0, "--transcript {}: expected 1 or more", flags.transcript);
  require(flags.task.task.empty() || eval::find_text_task(flags.task.task) != nullptr,
          "--task {}: the suite takes gsm8k, math, aime, gpqa, humaneval and livecodebench",
          flags.task.task);
}

std::unique_ptr<const engine::LoadedModel> load_suite_base(const SuiteFlags& flags,
                                                           const LoadOptions& student) {
  LoadOptions base = student;
  base.kv_dtype.clear();  // it is the student's, to be judged
  return load_reference(base, flags.compressed.empty() ? "dense" : flags.load.model);
}

SuitePlan plan_suite(const SuiteFlags& flags, int positions) {
  SuitePlan plan;
  plan.samples = flags.samples > 0 ? flags.samples : flags.quick ? 40 : 300;
  const int context = flags.context > 0 ? flags.context : flags.quick ? 2048 : 8192;
  plan.context = std::min(context, positions);
  const int transcript =
      flags.transcript > 0 ? flags.transcript : std::max(plan.context, kLeastTranscript);
  plan.transcript = std::min(transcript, positions);
  plan.sessions = flags.quick ? 4 : 20;
  plan.pairs = flags.quick ? 3 : 6;
  plan.steps = flags.quick ? 32 : 64;
  plan.windows = flags.quick ? 8 : 0;
  plan.stretched_windows = flags.quick ? 2 : 0;
  return plan;
}

bool wants_row(const SuiteFlags& flags, const std::string& row) {
  return flags.rows.empty() || std::ranges::find(flags.rows, row) != flags.rows.end();
}

Json describe_suite(const SuiteFlags& flags) {
  Json settings{{"quick", flags.quick},
                {"samples", flags.samples},
                {"context", flags.context},
                {"transcript", flags.transcript},
                {"turns", flags.turns}};
  if (flags.texts.empty()) {
    settings["manual_sha256"] = digest_of_text(std::string(eval::manual_text()));
  }
  for (const std::string& text : flags.texts) {
    settings["texts"].push_back({{"text", text}, {"text_sha256", digest_of_text(read_file(text))}});
  }
  if (!flags.task.task.empty()) {
    settings["task"] = describe_task_data(flags.task);
  }
  return settings;
}

}  // namespace winnow::cli
