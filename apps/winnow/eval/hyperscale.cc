// winnow eval hyperscale: the gain from longer and more chains of thought, by KV reads and tokens.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "apps/winnow/eval/answers.h"
#include "apps/winnow/eval/eval.h"
#include "apps/winnow/eval/run.h"
#include "apps/winnow/eval/task_data.h"
#include "apps/winnow/flags.h"
#include "apps/winnow/output.h"
#include "base/error.h"
#include "engine/request.h"
#include "eval/hyperscale.h"
#include "eval/tasks/programs.h"

namespace winnow::cli {
namespace {

struct HyperscaleFlags : EvalFlags {
  TaskDataFlags data;
  std::vector<int> lengths{1024, 2048, 4096};
  std::vector<int> widths{1, 2, 4, 8};
  SamplingOptions sampling{.temperature = 0.6, .top_p = 0.95};
};

Json to_json(const std::vector<eval::ScalingPoint>& points) {
  Json result = Json::array();
  for (const eval::ScalingPoint& point : points) {
    result.push_back({{"length", point.length},
                      {"width", point.width},
                      {"compression_ratio", point.compression_ratio},
                      {"accuracy", point.accuracy.mean},
                      {"accuracy_error", point.accuracy.error},
                      {"kv_reads", point.kv_reads},
                      {"peak_tokens", point.peak_tokens},
                      {"questions", point.questions},
                      {"skipped", point.skipped}});
  }
  return result;
}

void print_points(const std::vector<eval::ScalingPoint>& points) {
  print("     L   W     CR        accuracy, %     KV reads  peak tokens\n");
  for (const eval::ScalingPoint& point : points) {
    print(fmt::format("{:>6} {:>3} {:>6.2f}  {:>17} {:>12.0f} {:>12.0f}\n", point.length,
                      point.width, point.compression_ratio,
                      with_error(100.0 * point.accuracy.mean, 100.0 * point.accuracy.error, 1),
                      point.kv_reads, point.peak_tokens));
  }
  if (!points.empty() && points.front().skipped > 0) {
    print(fmt::format("{} questions leave no room for an answer at the shortest length\n",
                      points.front().skipped));
  }
}

int run_hyperscale(const HyperscaleFlags& flags) {
  const eval::TextTask* task = eval::find_text_task(flags.data.task);
  require(task != nullptr,
          "--task {}: expected gsm8k, math, aime, gpqa, humaneval or livecodebench",
          flags.data.task);
  require(!flags.lengths.empty() && std::ranges::min(flags.lengths) >= 1,
          "--lengths: expected numbers of tokens");
  require(!flags.widths.empty() && std::ranges::min(flags.widths) >= 1,
          "--widths: expected numbers of chains");
  const int widest = std::ranges::max(flags.widths);
  engine::validate(flags.sampling);
  require(widest == 1 || flags.sampling.temperature > 0.0,
          "--temperature 0: {} chains would all be the same", widest);
  const TaskData data = read_task_data(flags.data);
  Json settings = describe_task_data(flags.data);
  settings["lengths"] = flags.lengths;
  settings["widths"] = flags.widths;
  settings["temperature"] = flags.sampling.temperature;
  settings["top_p"] = flags.sampling.top_p;
  EvalRun run("hyperscale", flags, settings);
  const auto questions = eval::load_questions(
      *task, data.lines, data.shots,
      {.shots = flags.data.shots, .max_tokens = 1, .chat = run.chat_encoder()}, run.encoder());
  std::vector<std::vector<eval::Question>> by_length;
  std::vector<eval::Question> all;
  for (const int length : flags.lengths) {
    by_length.push_back(eval::at_length(questions, length));
    all.insert(all.end(), by_length.back().begin(), by_length.back().end());
  }
  eval::AnswerOptions options;
  options.batch = flags.batch;
  options.samples = widest;
  options.widths = flags.widths;
  options.sampling = flags.sampling;
  options.sampling.seed = flags.seed;
  options.on_progress = run.progress(static_cast<std::int64_t>(all.size()), "questions");
  eval::answer_questions(run.model(), run.tokenizer(), all, make_grade(flags.data, *task), options,
                         run.journal());
  std::vector<eval::ScalingPoint> points;
  for (std::size_t i = 0; i < by_length.size(); ++i) {
    const auto some =
        eval::summarize_scaling(run.journal(), by_length[i], flags.lengths[i], flags.widths);
    std::ranges::copy_if(some, std::back_inserter(points),
                         [](const eval::ScalingPoint& point) { return point.questions > 0; });
  }
  return run.finish({{"points", to_json(points)}}, [&points] { print_points(points); });
}

}  // namespace

void add_eval_hyperscale(CLI::App& eval, Run& run) {
  std::shared_ptr<HyperscaleFlags> flags;
  CLI::App* command = add_command(
      eval, run, "hyperscale",
      "Accuracy of W parallel chains of at most L tokens by majority vote (humaneval, "
      "livecodebench: pass@all) "
      "beside the KV reads and peak tokens they take; compare several with `eval frontier`",
      flags, run_hyperscale);
  add_task_data_flags(*command, flags->data);
  const FlagGroup own(*command);
  own.option("--lengths", flags->lengths, "N", "L: most tokens of prompt and answer: 1024,2048")
      ->delimiter(',');
  own.option("--widths", flags->widths, "N", "W: parallel chains: 1,2,4")->delimiter(',');
  add_temperature_flags(own, flags->sampling);
  add_chat_flag(*command, *flags);
  add_eval_flags(*command, *flags);
}

}  // namespace winnow::cli
