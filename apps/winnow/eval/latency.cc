// winnow eval latency: the cost of a decode step by the DMS paper's model, the cache's share of it,
// and measurements.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <utility>

#include "apps/winnow/eval/eval.h"
#include "apps/winnow/flags.h"
#include "apps/winnow/model_names.h"
#include "apps/winnow/output.h"
#include "apps/winnow/report/page.h"
#include "apps/winnow/report/svg_plot.h"
#include "apps/winnow/shapes.h"
#include "base/error.h"
#include "base/read_bandwidth.h"
#include "checkpoint/json.h"
#include "checkpoint/json_text.h"
#include "eval/journal.h"
#include "eval/latency.h"
#include "model/checkpoint.h"

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
  std::vector<std::string> beside;
  std::string html;
  bool json = false;
};

model::ModelSpec config_of(const LatencyFlags& flags) {
  require(flags.shape.empty() != flags.model.empty(), "either --shape or --model is needed");
  if (!flags.model.empty()) {
    return model::Checkpoint::open(flags.model).spec();
  }
  const auto shape = find_shape(flags.shape);
  require(shape.has_value(), "--shape {}: expected one of {}", flags.shape,
          fmt::join(shape_names(), ", "));
  return *shape;
}

Json modelled_steps(const LatencyFlags& flags, const model::ModelSpec& config,
                    eval::LatencyOptions options) {
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
  return steps;
}

// A step measured by `winnow bench --json`, and the model's time for the same bytes.
Json measured_step(const std::string& file, const LatencyFlags& flags,
                   const model::ModelSpec& config, eval::LatencyOptions options) {
  const auto bench = parse_json(read_text_file(file), file);
  require(bench.is_object() && bench.contains("decode_tokens_per_s") && bench.contains("kv"),
          "{}: expected what `winnow bench --json` printed", file);
  const std::string wanted = flags.shape.empty() ? flags.model : flags.shape;
  require(bench.at("model") == wanted, "{}: is of {}, not of \"{}\"", file,
          json_text(bench.at("model")), wanted);
  const double batch = bench.at("batch").get<int>();
  // The average length: half of the tokens have been decoded.
  const double length = bench.at("decode_depth").get<int>() + 0.5 * bench.at("generate").get<int>();
  options.compression_ratio = bench.at("kv").at("compression_ratio").get<double>();
  eval::StepCost cost = eval::step_cost(config, batch, length, options);
  cost.weight_reads = bench.at("weight_bytes_per_step").get<double>();
  cost.kv_reads = bench.at("entry_bytes_per_step").get<double>();
  const double modelled =
      std::max(cost.flops / options.flops_per_s, cost.reads() / options.bytes_per_s);
  const double measured = batch / bench.at("decode_tokens_per_s").get<double>();
  return {{"file", file},
          {"batch", bench.at("batch").get<int>()},
          {"length", length},
          {"compression_ratio", options.compression_ratio},
          {"kv_share", cost.kv_reads / cost.reads()},
          {"modelled_seconds", modelled},
          {"seconds", measured}};
}

// One series for each batch and ratio of `steps`, against the length.
Plot plot_of(const Json& steps, const std::string& title, const char* key, double scale) {
  Plot plot{.title = title, .x_label = "tokens", .y_label = title, .log_x = true, .series = {}};
  for (const Json& step : steps) {
    const double length = step.at("length").get<double>();
    const std::string name = fmt::format("batch {}, CR {:g}", step.at("batch").get<int>(),
                                         step.at("compression_ratio").get<double>());
    auto series = std::ranges::find(plot.series, name, &PlotSeries::name);
    if (series == plot.series.end()) {
      series = plot.series.insert(plot.series.end(), {name, {}, {}});
    }
    if (length > 0.0) {  // the axis is logarithmic
      series->points.emplace_back(length, scale * step.at(key).get<double>());
      series->line = series->points;
    }
  }
  return plot;
}

void write_plots(const LatencyFlags& flags, const Json& steps, const Json& measured) {
  Plot times = plot_of(steps, "ms per step", "seconds", 1e3);
  for (const Json& step : measured) {
    times.series.push_back(
        {"measured: " + std::filesystem::path(step.at("file").get<std::string>()).stem().string(),
         {{step.at("length").get<double>(), 1e3 * step.at("seconds").get<double>()}},
         {}});
  }
  const std::string name = escape_markup(flags.shape.empty() ? flags.model : flags.shape);
  write_page(flags.html,
             fmt::format("<title>A decode step of {0}</title></head><body "
                         "style=\"font: 15px system-ui, sans-serif; max-width: 50em; margin: "
                         "2em auto\"><h1>A decode step of {0}</h1>\n{1}{2}</body></html>\n",
                         name, to_svg(plot_of(steps, "the cache's share, %", "kv_share", 100)),
                         to_svg(times)));
}

void print_steps(const Json& steps, const Json& measured) {
  print("batch   length    CR     ms/step    tokens/s   KV share  bound by\n");
  for (const Json& step : steps) {
    print(fmt::format("{:>5} {:>8} {:>5g} {:>11.3f} {:>11.0f} {:>9.1f}%  {}\n",
                      step.at("batch").get<int>(), step.at("length").get<int>(),
                      step.at("compression_ratio").get<double>(),
                      1e3 * step.at("seconds").get<double>(), step.at("tokens_per_s").get<double>(),
                      100.0 * step.at("kv_share").get<double>(),
                      step.at("memory_bound").get<bool>() ? "memory" : "arithmetic"));
  }
  if (!measured.empty()) {
    print("\nbatch   length    CR  ms/step by the model   measured   KV share\n");
  }
  for (const Json& step : measured) {
    print(fmt::format(
        "{:>5} {:>8} {:>5.2f} {:>21.3f} {:>10.3f} {:>9.1f}%  {}\n", step.at("batch").get<int>(),
        step.at("length").get<int>(), step.at("compression_ratio").get<double>(),
        1e3 * step.at("modelled_seconds").get<double>(), 1e3 * step.at("seconds").get<double>(),
        100.0 * step.at("kv_share").get<double>(), step.at("file").get<std::string>()));
  }
}

void check_limits(const LatencyFlags& flags) {
  for (const auto& [flag, value] :
       std::initializer_list<std::pair<const char*, double>>{{"--tflops", flags.tflops},
                                                             {"--gbps", flags.gbps},
                                                             {"--weight-bytes", flags.weight_bytes},
                                                             {"--kv-bytes", flags.kv_bytes}}) {
    require(std::isfinite(value) && value > 0.0, "{} {}: expected more than 0", flag, value);
  }
}

int run_latency(const LatencyFlags& flags) {
  check_limits(flags);
  if (!flags.html.empty()) {
    require_page(flags.html);
  }
  const model::ModelSpec config = config_of(flags);
  const eval::LatencyOptions options{
      .flops_per_s = flags.tflops * 1e12,
      .bytes_per_s = flags.measure ? measure_read_bandwidth() : flags.gbps * 1e9,
      .weight_bytes = flags.weight_bytes,
      .kv_bytes = flags.kv_bytes};
  const Json steps = modelled_steps(flags, config, options);
  Json measured = Json::array();
  for (const std::string& file : flags.beside) {
    measured.push_back(measured_step(file, flags, config, options));
  }
  if (!flags.html.empty()) {
    write_plots(flags, steps, measured);
  }
  if (flags.json) {
    print_json({{"flops_per_s", options.flops_per_s},
                {"bytes_per_s", options.bytes_per_s},
                {"steps", steps},
                {"measured", measured}});
    return kSuccess;
  }
  print(fmt::format("{:.1f} TFLOP/s, {:.0f} GB/s\n", options.flops_per_s / 1e12,
                    options.bytes_per_s / 1e9));
  print_steps(steps, measured);
  return kSuccess;
}

}  // namespace

void add_eval_latency(CLI::App& eval, Run& run) {
  std::shared_ptr<LatencyFlags> flags;
  CLI::App* command = add_command(
      eval, run, "latency",
      "Time of a decode step and the cache's share of it by the DMS paper's model of the device's "
      "limits, beside what `winnow bench` measured",
      flags, run_latency);
  const FlagGroup own(*command);
  own.open_option("--shape", flags->shape, "NAME", "Shape of a well-known model (no default)");
  own.open_option(kModelFlag, flags->model, kModelType, "Shape of a model (no default)");
  own.option("--tflops", flags->tflops, "X", "Peak of the device, in TFLOP/s (an H100's)");
  own.option("--gbps", flags->gbps, "X", "Bandwidth of its memory, in GB/s (an H100's)");
  own.flag("--measure-bandwidth", flags->measure, "Measure this machine's instead (default: off)");
  own.option("--batches", flags->batches, "N", "Sequences per step: 1,16,256")->delimiter(',');
  own.option("--lengths", flags->lengths, "N", "Tokens of each: 1024,8192")->delimiter(',');
  own.option("--crs", flags->ratios, "X", "Compression ratios: 1,4,8")->delimiter(',');
  own.option("--weight-bytes", flags->weight_bytes, "X", "Bytes per weight");
  own.option("--kv-bytes", flags->kv_bytes, "X", "Bytes per number in the cache");
  own.open_option(
      "--beside", flags->beside, "FILE",
      "Results of `winnow bench --json` for the same model, to compare (default: none)");
  own.open_option("--html", flags->html, "FILE", "Also write a page of plots (no default)");
  add_json_flag(own, flags->json);
}

}  // namespace winnow::cli
