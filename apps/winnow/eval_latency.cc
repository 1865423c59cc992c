// winnow eval latency: what a decode step costs by the DMS paper's model, and the cache's share of
// it.
#include <fmt/format.h>

#include <optional>

#include "base/error.h"
#include "base/read_bandwidth.h"
#include "checkpoint/checkpoint.h"
#include "eval.h"
#include "eval/journal.h"
#include "eval/latency.h"
#include "output.h"
#include "shapes.h"

namespace winnow::cli {
namespace {

using eval::Json;

struct LatencyFlags {
  std::string shape;
  std::string model;
  double tflops = 989.5;
  double gbps = 3350.0;
  bool measure = false;
  std::vector<int> batches{1, 16, 256};
  std::vector<int> lengths{1024, 8192, 32768};
  std::vector<double> ratios{1, 4, 8};
  double weight_bytes = 2.0;
  double kv_bytes = 2.0;
  bool json = false;
};

ModelConfig config_of(const LatencyFlags& flags) {
  require(flags.shape.empty() != flags.model.empty(), "either --shape or --model is needed");
  if (!flags.model.empty()) {
    return Checkpoint::open(flags.model).config();
  }
  const auto shape = find_shape(flags.shape);
  require(shape.has_value(),
          "--shape {}: expected smollm2-135m, llama-2-7b, llama-3.2-1b or qwen3-8b", flags.shape);
  return *shape;
}

int run_latency(const LatencyFlags& flags) {
  const ModelConfig config = config_of(flags);
  eval::LatencyOptions options{
      .flops_per_s = flags.tflops * 1e12,
      .bytes_per_s = flags.measure ? measure_read_bandwidth() : flags.gbps * 1e9,
      .weight_bytes = flags.weight_bytes,
      .kv_bytes = flags.kv_bytes};
  Json steps = Json::array();
  for (const int batch : flags.batches) {
    for (const int length : flags.lengths) {
      for (const double ratio : flags.ratios) {
        require(batch >= 1 && length >= 0 && ratio >= 1.0,
                "batch {}, length {}, ratio {}: expected at least 1, 0 and 1", batch, length,
                ratio);
        options.compression_ratio = ratio;
        const eval::StepCost cost = eval::step_cost(config, batch, length, options);
        steps.push_back({{"batch", batch},
                         {"length", length},
                         {"compression_ratio", ratio},
                         {"seconds", cost.seconds},
                         {"tokens_per_s", batch / cost.seconds},
                         {"kv_share", cost.kv_share},
                         {"flops", cost.flops},
                         {"weight_bytes", cost.weight_reads},
                         {"kv_bytes", cost.kv_reads},
                         {"memory_bound", cost.is_memory_bound(options)}});
      }
    }
  }
  if (flags.json) {
    print_json({{"flops_per_s", options.flops_per_s},
                {"bytes_per_s", options.bytes_per_s},
                {"steps", steps}});
    return kSuccess;
  }
  print(fmt::format("{:.1f} TFLOP/s, {:.0f} GB/s\n", options.flops_per_s / 1e12,
                    options.bytes_per_s / 1e9));
  print("batch   length    CR     ms/step    tokens/s   KV share  bound by\n");
  for (const Json& step : steps) {
    print(fmt::format("{:>5} {:>8} {:>5g} {:>11.3f} {:>11.0f} {:>9.1f}%  {}\n",
                      step.at("batch").get<int>(), step.at("length").get<int>(),
                      step.at("compression_ratio").get<double>(),
                      1e3 * step.at("seconds").get<double>(), step.at("tokens_per_s").get<double>(),
                      100.0 * step.at("kv_share").get<double>(),
                      step.at("memory_bound").get<bool>() ? "memory" : "arithmetic"));
  }
  return kSuccess;
}

}  // namespace

void add_eval_latency(CLI::App& eval, Run& run) {
  std::shared_ptr<LatencyFlags> flags;
  CLI::App* command = add_command(
      eval, run, "latency",
      "Time of a decode step and the cache's share of it by the DMS paper's model: a model of the "
      "device's limits, not a measurement (that is `winnow bench`)",
      flags, run_latency);
  command->add_option("--shape", flags->shape, "A well-known model's (no default)")
      ->type_name("NAME");
  command->add_option("--model", flags->model, "A model directory's (no default)")
      ->type_name("DIR");
  command->add_option("--tflops", flags->tflops, "Peak of the device, in TFLOP/s (an H100's)")
      ->capture_default_str()
      ->type_name("X");
  command->add_option("--gbps", flags->gbps, "Bandwidth of its memory, in GB/s (an H100's)")
      ->capture_default_str()
      ->type_name("X");
  command->add_flag("--measure-bandwidth", flags->measure,
                    "Measure this machine's instead (default: off)");
  command->add_option("--batches", flags->batches, "Sequences per step: 1,16,256")
      ->delimiter(',')
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--lengths", flags->lengths, "Tokens of each: 1024,8192")
      ->delimiter(',')
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--crs", flags->ratios, "Compression ratios: 1,4,8")
      ->delimiter(',')
      ->capture_default_str()
      ->type_name("X");
  command->add_option("--weight-bytes", flags->weight_bytes, "Bytes of a weight")
      ->capture_default_str()
      ->type_name("X");
  command->add_option("--kv-bytes", flags->kv_bytes, "Bytes of a number in the cache")
      ->capture_default_str()
      ->type_name("X");
  command->add_flag("--json", flags->json, "Print JSON (default: off)");
}

}  // namespace winnow::cli
