// winnow bench: speed and memory of a model or of a shape with random weights.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <memory>

#include "apps/winnow/bench/report.h"
#include "apps/winnow/bench/setup.h"
#include "apps/winnow/command.h"
#include "apps/winnow/flags.h"
#include "apps/winnow/output.h"
#include "apps/winnow/shapes.h"
#include "base/error.h"
#include "kvcache/rule.h"

namespace winnow::cli {
namespace {

std::size_t peak_resident_bytes() {
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

template <class Result>
void print_result(const BenchOptions& options, const Setup& setup, const Result& result) {
  if (options.json) {
    print_json(to_json(options, setup, result));
  } else {
    print(table(options, setup, result));
  }
}

void measure_batch(const BenchOptions& options, const Setup& setup,
                   const engine::Backend& backend) {
  FixedBatchReport report;
  report.result = run_bench(backend, setup.engine, setup.plan);
  report.weight_bytes_per_step = backend.weight_bytes_per_step(report.result.batch);
  report.peak_rss = peak_resident_bytes();  // before the bandwidth test allocates its buffer
  report.bandwidth = backend.read_bandwidth();
  print_result(options, setup, report);
}

int run_bench_command(const BenchOptions& options) {
  require(options.load.model.empty() != options.shape.empty(),
          "either --model or --shape is needed");
  Setup setup;
  const auto model = place_model(options, setup);
  if (setup.load) {
    print_result(options, setup, run_full_load(*model->backend, setup.engine, *setup.load));
    return kSuccess;
  }
  if (setup.first_token) {
    print_result(options, setup,
                 run_first_token(*model->backend, setup.engine, *setup.first_token));
    return kSuccess;
  }
  for (const int batch : options.batches) {
    if (setup.plan.batch) {
      setup.plan.batch = batch;
      setup.engine.max_sequences = batch;
    }
    measure_batch(options, setup, *model->backend);
  }
  return kSuccess;
}

void add_plan_flags(CLI::App& command, BenchOptions& options) {
  const FlagGroup plan(command);
  plan.open_option("--context", options.context, "N",
                   "Prompt length: prefill is measured over it, decoding continues from there "
                   "(default: as --prefill)");
  plan.open_option("--depth", options.depth, "D",
                   "Tokens in the cache before prefill and decoding are measured, each from that "
                   "state (default: 0)");
  plan.open_option("--prefill", options.prefill, "P",
                   "Prompt tokens to measure at that depth (default: 512)");
  plan.option("--generate", options.generate, "N", "Tokens to decode per sequence");
  plan.open_option("--batch", options.batches, "C[,C]",
                   "Sequences at a time; several numbers are measured one after another, with the "
                   "same weights (default: 1)")
      ->delimiter(',');
  plan.flag("--fit", options.fit,
            fmt::format("As many sequences as --kv-gib holds when decoding ends, up to {} "
                        "(default: off)",
                        BenchPlan::kMostFitted));
  plan.open_option(
      "--computed", options.computed, "N",
      "Sequences that compute their prompt; the others get copies of the first, by way "
      "of host memory (default: all)");
  plan.flag("--growth", options.growth,
            "Record the cache's bytes after each chunk of the first prompt (default: off)");
  plan.option("--repeat", options.repeat, "R", "Repetitions; the median is reported");
  plan.open_option("--load", options.lengths, "IN/OUT",
                   "Instead of fixed batches: requests of IN prompt tokens and OUT output tokens "
                   "that all wait from the start, through continuous batching; OUT may be a range "
                   "such as 200-1000, then the engine does not know when an answer will end "
                   "(default: off)");
  plan.open_option("--requests", options.requests, "N",
                   "With --load: how many requests (default: 256)");
  plan.open_option("--max-sequences", options.max_sequences, "N",
                   "With --load: sequences that hold cache at a time (default: 256)");
  plan.open_option("--prefix", options.prefix, "N",
                   "Instead of fixed batches: time to the first token of a prompt whose first N "
                   "tokens are computed, in the cache, or in --host-gib (default: off)");
  plan.open_option(
      "--evict-rate", options.evict_rate, "R",
      fmt::format("{}: draw decisions so that this share is evicted or merged "
                  "(default: the model decides)",
                  kvcache::list_rules("and", [](const auto& rule) { return rule.learned(); })));
  plan.open_option("--head-spread", options.head_spread, "X",
                   "With drawn decisions: heads keep 1 - X to 1 + X times the average of what "
                   "leaves the window (default: 0, all alike)");
}

}  // namespace

void add_bench(CLI::App& app, Run& run) {
  std::shared_ptr<BenchOptions> options;
  CLI::App* command = add_command(
      app, run, "bench",
      "Measures prefill and decode speed, cache bytes and peak memory, and compares decoding with "
      "the time it takes to read weights and entries once",
      options, run_bench_command);
  const FlagGroup own(*command);
  add_model_flag(own, options->load.model);
  own.open_option(
      "--shape", options->shape, "NAME",
      fmt::format("Random weights instead: {} (no default)", fmt::join(shape_names(), ", ")));
  add_json_flag(own, options->json);
  add_plan_flags(*command, *options);
  add_run_flags(*command, options->load);
  command->get_option("--cr")->description(fmt::format(
      "Compression ratio of {}, which need it; {}: decisions drawn at random give it at the "
      "depth of decoding, instead of the model's own or --evict-rate (no default)",
      kvcache::list_rules("and", [](const auto& rule) { return rule.has_budget; }),
      kvcache::list_rules("and", [](const auto& rule) { return rule.learned_alone(); })));
  command->get_option("--window")
      ->description(fmt::format(
          "{}: steps for which a marked entry stays visible (default: the checkpoint's, else 256)",
          kvcache::list_rules("and", [](const auto& rule) { return rule.marks; })));
  add_speculation_flags(*command, options->load);
  FlagGroup(*command, "Cache and computation")
      .open_option("--draft-shape", options->draft_shape, "NAME",
                   "A draft model with random weights: one of the shapes of --shape, with its "
                   "vocabulary made the model's (no default)")
      ->excludes(command->get_option("--draft-model"));
}

}  // namespace winnow::cli
