// winnow eval variables: following assignments that are far apart.
#include <fmt/format.h>

#include "apps/winnow/eval/answers.h"
#include "apps/winnow/eval/eval.h"
#include "apps/winnow/eval/run.h"
#include "apps/winnow/flag_group.h"
#include "apps/winnow/output.h"
#include "base/sha256.h"
#include "eval/variables.h"

namespace winnow::cli {
namespace {

struct VariablesFlags : EvalFlags {
  std::string text;
  eval::VariablesOptions variables{.lengths = {1024, 2048, 4096}};
};

// Accuracy by length.
Json by_length(const VariablesFlags& flags, const eval::Journal& journal,
               std::span<const eval::Question> questions) {
  Json result = Json::array();
  for (const int length : flags.variables.lengths) {
    std::vector<eval::Question> some;
    for (const eval::Question& question : questions) {
      if (question.facts.at("length") == length) {
        some.push_back(question);
      }
    }
    const auto summary = eval::summarize_answers(journal, some);
    result.push_back({{"length", length},
                      {"accuracy", summary.accuracy.mean},
                      {"accuracy_error", summary.accuracy.error},
                      {"questions", summary.questions},
                      {"skipped", summary.skipped}});
  }
  return result;
}

int run_variables(const VariablesFlags& flags) {
  const std::string text = flags.text.empty() ? eval::kNoise : read_text(flags.text);
  Sha256 digest;
  digest.update(text);
  eval::VariablesOptions variables = flags.variables;
  variables.seed = flags.seed;
  EvalRun run("variables", flags,
              {{"text", flags.text},
               {"text_sha256", digest.finish()},
               {"lengths", variables.lengths},
               {"chains", variables.chains},
               {"hops", variables.hops},
               {"repeats", variables.repeats},
               {"max_tokens", variables.max_tokens},
               {"style", variables.style}});
  const auto encode = run.encoder();
  const auto questions = eval::make_variables({run.tokenizer(), text}, encode, variables);
  eval::AnswerOptions options;
  options.batch = flags.batch;
  options.on_progress = run.progress(static_cast<std::int64_t>(questions.size()), "texts");
  eval::answer_questions(run.model(), run.tokenizer(), questions, eval::grade_variables, options,
                         run.journal());
  const auto summary = eval::summarize_answers(run.journal(), questions);
  // RULER's score.
  const auto found = eval::mean_grade(run.journal(), questions, "found");
  Json results = eval::to_json(summary);
  if (found.count > 0) {
    results["found"] = found.mean;
    results["found_error"] = found.error;
  }
  results["by_length"] = by_length(flags, run.journal(), questions);
  return run.finish(results, [&] {
    print_answers(summary);
    if (found.count > 0) {
      print(fmt::format("variables found    {} %\n",
                        with_error(100.0 * found.mean, 100.0 * found.error, 1)));
    }
    for (const Json& row : results.at("by_length")) {
      print(fmt::format("{:>8} tokens    {:.1f} %\n", row.at("length").get<int>(),
                        100.0 * row.at("accuracy").get<double>()));
    }
  });
}

}  // namespace

void add_eval_variables(CLI::App& eval, Run& run) {
  std::shared_ptr<VariablesFlags> flags;
  CLI::App* command = add_command(
      eval, run, "variables",
      "Variable tracking: scatters chains of assignments over a text and asks for one of them",
      flags, run_variables);
  eval::VariablesOptions& variables = flags->variables;
  const FlagGroup own(*command);
  own.open_option("--text", flags->text, "FILE",
                  "Text to scatter them over; - is standard input (default: RULER's filler)");
  add_length_flags(own, variables.lengths, variables.max_tokens);
  own.option("--chains", variables.chains, "N", "Chains in a text; one is asked for");
  own.option("--hops", variables.hops, "N", "Copies that follow a chain's first assignment");
  own.option("--repeats", variables.repeats, "N", "Texts per length");
  own.option("--style", variables.style, "STYLE",
             "ruler (VAR X = 12345; which variables have the value?) or plain (sentences; "
             "which value has the last variable?)");
  add_chat_flag(*command, *flags);
  add_eval_flags(*command, *flags);
}

}  // namespace winnow::cli
