// winnow eval suite: can I use this student?
#include <fmt/format.h>

#include <filesystem>

#include "apps/winnow/eval/eval.h"
#include "apps/winnow/eval/reference.h"
#include "apps/winnow/eval/suite/measures.h"
#include "apps/winnow/eval/suite/page.h"
#include "apps/winnow/interrupt.h"
#include "apps/winnow/output.h"
#include "apps/winnow/report/page.h"
#include "base/error.h"
#include "eval/suite/conclusion.h"

namespace winnow::cli {
namespace {

std::string shown(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

// For a speed also the ratio: 25 % less time is 1.33 times the speed.
std::string difference_text(const eval::SuiteRow& row) {
  if (row.count == 0) {
    return "";
  }
  const std::string text =
      fmt::format("{} {}", with_error(row.difference(), row.loss.error, std::max(1, row.digits)),
                  row.loss_unit);
  const bool is_speed =
      row.kind == eval::SuiteRow::Kind::cost && row.more_is_better && row.base && row.student;
  return is_speed ? fmt::format("{:.2f}x, {}", *row.student / *row.base, text) : text;
}

void print_table(const std::vector<eval::SuiteRow>& rows, const eval::Conclusion& conclusion) {
  print(conclusion.sentence + "\n\n");
  print(fmt::format("{:<34}{:>10}{:>10}  {:<28}{}\n", "", "base", "student", "difference", ""));
  for (const eval::SuiteRow& row : rows) {
    print(fmt::format("{:<34}{:>10}{:>10}  {:<28}{}\n", row.title, shown(row.base, row.digits),
                      shown(row.student, row.digits), difference_text(row), row.verdict_text()));
  }
}

std::string html_path(const SuiteFlags& flags) {
  if (!flags.html.empty()) {
    return flags.html;
  }
  return flags.out.empty() ? "suite.html"
                           : std::filesystem::path(flags.out).replace_extension(".html").string();
}

// A rule without training is compared with the dense cache of the same model.
void require_two(const SuiteFlags& flags) {
  const LoadOptions& load = flags.load;
  const bool compresses =
      load.cache != "auto" || !load.probe.empty() || !load.kv_dtype.empty() || load.window;
  require(!flags.compressed.empty() || compresses,
          "--compressed: a student is needed, or --cache, --probe or --kv-dtype to compress the "
          "model itself with");
}

int run_suite(const SuiteFlags& flags) {
  check_suite(flags);
  require_two(flags);
  require_page(html_path(flags));
  EvalFlags of_student = flags;
  of_student.load.model = flags.compressed.empty() ? flags.load.model : flags.compressed;
  const auto base = load_suite_base(flags, of_student.load);
  Json settings = describe_suite(flags);
  settings["base"] = describe_model(flags.load.model, *base);
  EvalRun run("suite", of_student, settings);
  require(base->spec().vocab == run.model().spec().vocab,
          "--compressed: the student has a vocabulary of {} tokens, the base one of {}",
          run.model().spec().vocab, base->spec().vocab);
  SuiteMeasures measures(flags, run, *base, of_student.load.model);
  const auto rows = measures.run();
  const auto conclusion = eval::conclude(rows, measures.compression_ratio());
  Json results{{"verdict", eval::verdict_name(conclusion.verdict)},
               {"conclusion", conclusion.sentence},
               {"compression_ratio", measures.compression_ratio()},
               {"rows", Json::array()}};
  for (const eval::SuiteRow& row : rows) {
    results["rows"].push_back(eval::to_json(row));
  }
  const std::string html = html_path(flags);
  const int code = run.finish(results, [&] { print_table(rows, conclusion); });
  if (!interrupted()) {
    results["run"] = run.described();
    write_page(html, suite_page(rows, conclusion, results));
    print_note(fmt::format("report: {}\n", html));
  }
  return code;
}

}  // namespace

void add_eval_suite(CLI::App& eval, Run& run) {
  std::shared_ptr<SuiteFlags> flags;
  CLI::App* command =
      add_command(eval, run, "suite",
                  "Can I use this student? Text, retrieval, chats, an agent's transcript, far "
                  "positions, memory and speed of a model and its compressed form side by side, "
                  "with a verdict for each, as one HTML page",
                  flags, run_suite);
  add_suite_flags(*command, *flags);
}

}  // namespace winnow::cli
