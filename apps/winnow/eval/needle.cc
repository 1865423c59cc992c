// winnow eval needle: is one fact in a long text still found?
#include <fmt/format.h>

#include <cmath>

#include "apps/winnow/eval/answers.h"
#include "apps/winnow/eval/eval.h"
#include "apps/winnow/eval/run.h"
#include "apps/winnow/flag_group.h"
#include "apps/winnow/output.h"
#include "apps/winnow/report/score_map.h"
#include "base/sha256.h"
#include "eval/needle.h"

namespace winnow::cli {
namespace {

struct NeedleFlags : EvalFlags {
  std::string text;
  std::vector<int> lengths{1024, 2048, 4096};
  std::vector<double> depths{0, 25, 50, 75, 100};  // per cent
  int repeats = 5;
  int max_tokens = 40;
};

// JSON has no NaN.
Json to_json(const std::vector<std::vector<double>>& map) {
  Json rows = Json::array();
  for (const auto& scores : map) {
    Json row = Json::array();
    for (const double score : scores) {
      row.push_back(std::isnan(score) ? Json() : Json(score));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string picture(const NeedleFlags& flags, const std::vector<std::vector<double>>& map) {
  std::vector<std::string> rows;
  std::vector<std::string> columns;
  for (const double depth : flags.depths) {
    rows.push_back(fmt::format("{:g} %", depth));
  }
  for (const int length : flags.lengths) {
    columns.push_back(std::to_string(length));
  }
  return score_map("depth \\ tokens", rows, columns, map, output_is_terminal());
}

int run_needle(const NeedleFlags& flags) {
  const std::string text = read_text(flags.text);
  Sha256 digest;
  digest.update(text);
  EvalRun run("needle", flags,
              {{"text", flags.text},
               {"text_sha256", digest.finish()},
               {"lengths", flags.lengths},
               {"depths", flags.depths},
               {"repeats", flags.repeats},
               {"max_tokens", flags.max_tokens}});
  eval::NeedleOptions needle{.lengths = flags.lengths,
                             .depths = {},
                             .repeats = flags.repeats,
                             .max_tokens = flags.max_tokens,
                             .seed = flags.seed};
  for (const double depth : flags.depths) {
    needle.depths.push_back(depth / 100.0);
  }
  const auto encode = run.encoder();
  const auto questions = eval::make_needles({run.tokenizer(), text}, encode, needle);
  eval::AnswerOptions options;
  options.batch = flags.batch;
  options.on_progress = run.progress(static_cast<std::int64_t>(questions.size()), "needles");
  eval::answer_questions(run.model(), run.tokenizer(), questions, eval::grade_needle, options,
                         run.journal());
  const auto summary = eval::summarize_answers(run.journal(), questions);
  const auto map = eval::needle_map(run.journal(), needle);
  Json results = eval::to_json(summary);
  results["map"] = {
      {"depths", flags.depths}, {"lengths", flags.lengths}, {"accuracy", to_json(map)}};
  return run.finish(results, [&] {
    print_answers(summary);
    print("\n" + picture(flags, map));
  });
}

}  // namespace

void add_eval_needle(CLI::App& eval, Run& run) {
  std::shared_ptr<NeedleFlags> flags;
  CLI::App* command = add_command(
      eval, run, "needle",
      "Hides one fact in a text, at every depth of every length, and asks for it at the end", flags,
      run_needle);
  const FlagGroup own(*command);
  own.open_option("--text", flags->text, "FILE",
                  "Any text to hide the fact in; - is standard input (no default)")
      ->required();
  add_length_flags(own, flags->lengths, flags->max_tokens);
  own.option("--depths", flags->depths, "P", "Where the fact is hidden, in per cent: 0,50,100")
      ->delimiter(',');
  own.option("--repeats", flags->repeats, "N", "Facts per length and depth, of five kinds");
  add_chat_flag(*command, *flags);
  add_eval_flags(*command, *flags);
}

}  // namespace winnow::cli
