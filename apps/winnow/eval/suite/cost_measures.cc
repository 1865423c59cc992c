// Positions beyond those of training, and a cache's cost in memory and time.
#include <algorithm>
#include <cmath>
#include <optional>

#include "apps/winnow/eval/reference.h"
#include "apps/winnow/eval/suite/measures.h"
#include "apps/winnow/interrupt.h"
#include "apps/winnow/output.h"
#include "base/error.h"
#include "eval/measure_divergence.h"
#include "eval/perplexity.h"

namespace winnow::cli {
namespace {

constexpr double kStretch = 4.0;  // factor on positions, by YaRN
constexpr double kMebibyte = 1024.0 * 1024.0;

// Both models with their positions stretched.
struct Stretched {
  std::unique_ptr<const engine::LoadedModel> base;
  std::unique_ptr<const engine::LoadedModel> student;
};

Stretched load_stretched(const SuiteFlags& flags, const std::string& student) {
  LoadOptions load = flags.load;
  load.rope_yarn = flags.load.rope_yarn.value_or(kStretch);
  load.context.reset();
  load.model = student;
  return {load_suite_base(flags, load), engine::load_model(load)};
}

eval::SuiteRow part_row(const eval::PerplexityResult::Part& part, double stretch) {
  eval::SuiteRow row = perplexity_row(
      fmt::format("positions {}", part.first),
      fmt::format("Positions {} to {}", grouped(part.first), grouped(part.end)),
      fmt::format("Perplexity at these positions, both models stretched {:g} times by YaRN.",
                  stretch));
  row.base = std::exp(part.reference_nll);
  row.student = std::exp(part.nll);
  eval::judge_ratio(row, part.change, kAllowedPerplexity);
  return row;
}

eval::SuiteRow not_measured(const std::string& why) {
  eval::SuiteRow row =
      perplexity_row("positions", "Positions beyond training",
                     "Perplexity at up to four times the positions, stretched by YaRN.");
  row.interval = eval::interval_of(eval::Estimate{});
  row.note = "Not measured: " + why;
  return row;
}

// One model's part of a timed pair.
Json record_of(const eval::GreedyRun& run) {
  return {{"decode_tokens_per_s", run.decode_tokens_per_s},
          {"prefill_tokens_per_s", run.prefill_tokens_per_s},
          {"compression_ratio", run.cache.compression_ratio()},
          {"peak_bytes", run.peak_bytes}};
}

// For pairs of generations: both means, and the logarithm of the student's share of the base.
struct PairedCost {
  eval::Mean base;
  eval::Mean student;
  eval::Mean logarithm;

  void add(const Json& pair, const char* key) {
    const auto of_base = pair.at("base").at(key).get<double>();
    const auto of_student = pair.at("student").at(key).get<double>();
    base.add(of_base);
    student.add(of_student);
    logarithm.add(std::log(of_student / of_base));
  }
};

}  // namespace

SuiteMeasures::Rows SuiteMeasures::positions() {
  const double stretch = flags_.load.rope_yarn.value_or(kStretch);
  const int trained = flags_.load.rope_yarn ? static_cast<int>(positions_ / stretch) : positions_;
  const auto tokens = tokens_of(texts_.front());
  const auto most = static_cast<int>(stretch * trained);
  const int context = std::min(most, static_cast<int>(tokens.size() / 2));
  if (context <= trained) {
    return {not_measured(fmt::format(
        "the text has {} tokens, and two windows of more than {} are needed: name one by --text.",
        grouped(static_cast<std::int64_t>(tokens.size())), grouped(trained)))};
  }
  Stretched models;
  try {
    models = load_stretched(flags_, student_path_);
  } catch (const Error& error) {
    return {not_measured(error.what())};
  }
  eval::Journal journal = run_.journal().section("positions");
  eval::PerplexityOptions options =
      windows_of(static_cast<std::int64_t>(tokens.size()), context, plan_.stretched_windows);
  for (const int part : {trained, 2 * trained}) {
    if (part < context) {
      options.parts.push_back(part);
    }
  }
  options.journal = &journal;
  options.on_progress = run_.progress(options.max_tokens, "tokens at stretched positions");
  const auto result = eval::measure_perplexity(*models.student, models.base.get(), tokens, options);
  Rows rows;
  for (const auto& part : result.parts) {
    rows.push_back(part_row(part, stretch));
    if (context < most) {
      rows.back().note = fmt::format("The text bounds windows to {} tokens.", grouped(context));
    }
  }
  return rows;
}

SuiteMeasures::Rows SuiteMeasures::cost() {
  const auto tokens = tokens_of(texts_.front());
  const int length = std::min(std::max(plan_.context, plan_.transcript), positions_) - plan_.steps;
  const auto prefix = run_.prefix();
  const int room = static_cast<int>(tokens.size() / static_cast<std::size_t>(plan_.pairs)) +
                   static_cast<int>(prefix.size());
  const int context = std::min(length, room);
  const auto prompts = eval::cut_prompts(tokens, prefix, plan_.pairs, context);
  eval::Journal journal = run_.journal().section("cost");
  const auto progress = run_.progress(plan_.pairs, "timed generations");
  PairedCost speed;
  PairedCost bytes;
  eval::Mean ratio;
  for (std::size_t i = 0; i < prompts.size() && progress(static_cast<std::int64_t>(i)); ++i) {
    const std::string id = std::to_string(i);
    if (journal.find(id) == nullptr) {
      Json pair;
      for (const bool of_student : {i % 2 == 1, i % 2 == 0}) {  // each goes first half of the time
        pair[of_student ? "student" : "base"] =
            record_of(eval::run_greedy(of_student ? run_.model() : base_, prompts[i], plan_.steps));
      }
      journal.add(id, pair);
    }
    speed.add(*journal.find(id), "decode_tokens_per_s");
    bytes.add(*journal.find(id), "peak_bytes");
    ratio.add(journal.find(id)->at("student").at("compression_ratio").get<double>());
  }
  if (ratio.count() == 0) {
    return {};
  }
  note_ratio(ratio.mean(), context + plan_.steps);
  const std::string what =
      fmt::format("one sequence of {} tokens and {} generated ones", grouped(context), plan_.steps);
  eval::SuiteRow memory{
      .id = "cache bytes",
      .title = "Cache in memory",
      .what = fmt::format("The largest cache of {}; compression ratio {:.2f}.", what, ratio.mean()),
      .criterion = "no more than the base",
      .kind = eval::SuiteRow::Kind::cost,
      .unit = "MiB",
      .loss_unit = "%",
      .sample = "generations",
      .digits = 2,
      .more_is_better = false,
      .base = bytes.base.mean() / kMebibyte,
      .student = bytes.student.mean() / kMebibyte};
  eval::judge_ratio(memory, bytes.logarithm.estimate(), 0.0);
  memory.details["compression_ratio"] = ratio.mean();
  eval::SuiteRow time{
      .id = "decode time",
      .title = "Decode speed",
      .what = fmt::format("Tokens per second of {}, base and student in turn.", what),
      .criterion = fmt::format("at most {:g} % more time", kAllowedTime),
      .kind = eval::SuiteRow::Kind::cost,
      .unit = "tokens/s",
      .loss_unit = "% in time",
      .sample = "generations",
      .digits = 1,
      .more_is_better = false,
      .base = speed.base.mean(),
      .student = speed.student.mean()};
  eval::Estimate slower = speed.logarithm.estimate();
  slower.mean = -slower.mean;
  eval::judge_ratio(time, slower, kAllowedTime);
  return {memory, time};
}

}  // namespace winnow::cli
