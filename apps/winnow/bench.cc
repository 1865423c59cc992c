// winnow bench: speed and memory of a model or of a shape with random weights.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "api/llm_load.h"
#include "apps/winnow/bench_run.h"
#include "apps/winnow/command.h"
#include "apps/winnow/flags.h"
#include "apps/winnow/output.h"
#include "apps/winnow/shapes.h"
#include "base/error.h"
#include "base/threads.h"
#include "engine/options.h"
#include "model/checkpoint.h"
#include "model/cost.h"

namespace winnow::cli {
namespace {

constexpr int kDefaultWindow = 256;
constexpr int kMost = 1 << 24;  // of any count

struct BenchOptions {
  LoadOptions load;
  std::string shape;
  std::optional<int> context;
  std::optional<int> depth;
  std::optional<int> prefill;
  int generate = 128;
  std::vector<int> batches = {1};
  bool fit = false;
  int repeat = 3;
  bool growth = false;
  std::optional<double> evict_rate;
  std::optional<double> head_spread;
  bool json = false;
};

// The parameters of the run, settled before it starts.
struct Setup {
  std::string name;
  model::ModelSpec config;
  engine::EngineConfig engine;
  BenchPlan plan;
  std::optional<double> evict_rate;
  double head_spread = 0.0;
};

BenchPlan plan_of(const BenchOptions& options) {
  require(!options.context || !options.depth, "--context and --depth exclude each other");
  require(!options.context || !options.prefill,
          "--prefill goes with --depth; --context is the prompt's length already");
  BenchPlan plan{.depth = options.depth,
                 .prefill = options.context.value_or(options.prefill.value_or(512)),
                 .generate = options.generate,
                 .batch = options.batches.front(),
                 .repeat = options.repeat,
                 .growth = options.growth};
  const auto check = [](const char* flag, int value, int least) {
    require(value >= least && value <= kMost, "{} {}: expected {} to {}", flag, value, least,
            kMost);
  };
  check("--depth", plan.prefill_depth(), 0);
  check(options.context ? "--context" : "--prefill", plan.prefill, 1);
  check("--generate", plan.generate, 1);
  for (const int batch : options.batches) {
    check("--batch", batch, 1);
  }
  check("--repeat", plan.repeat, 1);
  if (options.fit) {
    require(options.load.kv_gib > 0.0 && !options.depth && options.batches == std::vector{1},
            "--fit: needs --kv-gib and --context, and excludes --batch and --depth");
    plan.batch.reset();
  }
  return plan;
}

// The share of tokens to evict (DMS) or merge (DMC) for a ratio of `cr` over all layers at `depth`.
// Windows and sliding layers do not depend on decisions.
double rate_for(double cr, const kvcache::RuleTraits& rule, int window, int depth,
                const model::ModelSpec& spec) {
  double heads = 0.0;  // that decide
  for (const model::LayerSpec& layer : spec.layers) {
    heads += layer.compresses() ? layer.attention()->kv_heads : 0.0;
  }
  require(heads > 0.0, "--cr {}: no layer of this model compresses", cr);
  const double dense = dense_entries(spec, depth);
  const double sliding = dense - heads * depth;
  const double always = rule.merges ? 0.0 : std::min<double>(depth, window + 1.0);
  const double most = dense / (sliding + heads * always);
  require(cr >= 1.0 && cr <= most,
          "--cr {}: expected 1 to {:.2f}; at {} tokens, windows of {} and sliding layers hold the "
          "rest",
          cr, most, depth, window);
  const double entries = (dense / cr - sliding) / heads;
  return depth > always ? 1.0 - (entries - always) / (depth - always) : 0.0;
}

// The spread of what heads keep when they evict the share `rate` of their tokens.
double spread_for(double spread, std::optional<double> rate) {
  require(rate.has_value(), "--head-spread goes with drawn decisions: --evict-rate or --cr");
  require(spread >= 0.0 && spread <= 1.0, "--head-spread {}: expected 0 to 1", spread);
  const double most = (1.0 - *rate) * (1.0 + spread);
  require(most <= 1.0, "--head-spread {}: a head would keep {:.2f} times its tokens", spread, most);
  return spread;
}

// Adds what the rule reads to a model without a retrofit, so that decisions can be drawn.
void prepare_for_drawn_decisions(const LoadOptions& load, model::ModelSpec& config) {
  const auto rule = kvcache::parse_rule(load.cache);
  if (!rule) {
    return;
  }
  if (kvcache::traits_of(*rule).marks && !config.dms) {
    config.dmc.reset();
    config.dms.emplace();
    config.dms->source = model::DmsConfig::Source::borrowed;
    config.dms->window = kDefaultWindow;
  } else if (kvcache::traits_of(*rule).merges && !config.dmc) {
    config.dms.reset();
    config.dmc.emplace();
  }
}

Setup set_up(const BenchOptions& options, model::ModelSpec config, std::string name) {
  Setup setup;
  setup.name = std::move(name);
  setup.config = std::move(config);
  setup.plan = plan_of(options);
  setup.evict_rate = options.evict_rate;
  const bool retrofitted = setup.config.dms || setup.config.dmc;
  prepare_for_drawn_decisions(options.load, setup.config);
  LoadOptions load = options.load;
  const kvcache::RuleTraits& rule = kvcache::traits_of(
      kvcache::parse_rule(load.cache).value_or(engine::trained_rule(setup.config)));
  if (rule.learned()) {
    load.cr.reset();  // means a rate here
  }
  setup.engine = engine::resolve_options(load, setup.config);
  setup.engine.max_sequences = setup.plan.batch.value_or(BenchPlan::kMostFitted);
  if (!rule.learned()) {
    require(!options.evict_rate && !options.head_spread,
            "--evict-rate and --head-spread go with --cache {}, this run is {}",
            kvcache::list_rules("and", [](const auto& other) { return other.learned(); }),
            rule.name);
    return setup;
  }
  require(!options.evict_rate || !options.load.cr, "--evict-rate and --cr exclude each other");
  if (options.load.cr) {
    setup.evict_rate = rate_for(*options.load.cr, rule, setup.engine.cache.window,
                                setup.plan.decode_depth(), setup.config);
  }
  require(retrofitted || setup.evict_rate,
          "--cache {}: the model decides nothing by itself; give --evict-rate or --cr", rule.name);
  require(!setup.evict_rate || (*setup.evict_rate >= 0.0 && *setup.evict_rate <= 1.0),
          "--evict-rate {}: expected 0 to 1", setup.evict_rate.value_or(0));
  if (options.head_spread) {
    setup.head_spread = spread_for(*options.head_spread, setup.evict_rate);
  }
  return setup;
}

// Where the ranks take their parts from, or the only one the whole model.
engine::PartSource make_source(const BenchOptions& options, Setup& setup) {
  if (options.load.model.empty()) {
    require(options.load.probe.empty(), "--probe {}: goes with --model", options.load.probe);
    const auto shape = find_shape(options.shape);
    require(shape.has_value(), "--shape {}: expected one of {}", options.shape,
            fmt::join(shape_names(), ", "));
    setup = set_up(options, *shape, options.shape);
    const auto format = engine::host_format(setup.engine);
    return {.whole = setup.config,
            .load =
                [config = setup.config, format](const model::Shard& shard) {
                  return model::random_weights(config, DType::bf16, 1, format, shard);
                },
            .digest = options.shape};
  }
  const model::Checkpoint checkpoint = engine::open_checkpoint(options.load);
  setup = set_up(options, checkpoint.spec(), options.load.model);
  engine::PartSource source = engine::parts_of(checkpoint, setup.engine);
  source.whole = setup.config;
  return source;
}

std::unique_ptr<const engine::LoadedModel> place_model(const BenchOptions& options, Setup& setup) {
  engine::PartSource source = make_source(options, setup);
  set_threads(options.load.threads);
  if (setup.evict_rate) {
    source.drawn = {.rate = *setup.evict_rate, .spread = setup.head_spread};
  }
  if (setup.engine.ranks > 1) {
    return engine::place_ranks(std::move(source), setup.engine, /*parameters=*/0);
  }
  model::Model model(source.whole, source.load({}));
  if (source.drawn) {
    model.draw_decisions(*source.drawn);
  }
  return engine::place_model(std::move(model), setup.engine, /*parameters=*/0);
}

std::size_t peak_resident_bytes() {
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

// What was measured, with all that follows from it.
struct Report {
  BenchResult result;
  std::size_t weight_bytes_per_step = 0;
  std::size_t peak_rss = 0;
  double bandwidth = 0.0;

  [[nodiscard]] std::size_t step_bytes() const {
    return weight_bytes_per_step + result.entry_bytes_per_step;
  }
  /// The fastest decoding that memory allows: what a step reads, at the measured bandwidth.
  [[nodiscard]] double floor_tokens_per_s() const {
    return bandwidth * result.batch / static_cast<double>(step_bytes());
  }
  [[nodiscard]] double share_of_floor() const {
    return median(result.decode_tokens_per_s) / floor_tokens_per_s();
  }
};

nlohmann::ordered_json to_json(const BenchOptions& options, const Setup& setup,
                               const Report& report) {
  using Json = nlohmann::ordered_json;
  const BenchResult& r = report.result;
  const kvcache::CacheConfig& cache = setup.engine.cache;
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(); };
  Json growth = Json::array();
  for (const GrowthPoint& point : r.growth) {
    growth.push_back(
        {{"tokens", point.tokens}, {"bytes", point.bytes}, {"dense_bytes", point.dense_bytes}});
  }
  Json json{
      {"model", setup.name},
      {"cache", kvcache::rule_name(cache.rule)},
      {"window", cache.traits().marks ? Json(cache.window) : Json()},
      {"cr", or_null(options.load.cr)},
      {"evict_rate", or_null(setup.evict_rate)},
      {"head_spread", setup.head_spread},
      {"dtype", options.load.dtype},
      {"weights", options.load.weights},
      {"kv_dtype", ops::format_name(cache.format)},
      {"threads", thread_count()},
      {"batch", r.batch},
      {"depth", setup.plan.prefill_depth()},
      {"prefill", setup.plan.prefill},
      {"decode_depth", setup.plan.decode_depth()},
      {"generate", setup.plan.generate},
      {"fill_tokens_per_s", setup.plan.prefill_depth() > 0 ? Json(r.fill_tokens_per_s) : Json()},
      {"prefill_tokens_per_s", median(r.prefill_tokens_per_s)},
      {"decode_tokens_per_s", median(r.decode_tokens_per_s)},
      {"prefill_runs", r.prefill_tokens_per_s},
      {"decode_runs", r.decode_tokens_per_s},
      {"kv",
       {{"bytes", r.kv_bytes},
        {"dense_bytes", r.dense_bytes},
        {"compression_ratio", r.compression_ratio},
        {"live_entries", r.live_entries}}},
      {"weight_bytes_per_step", report.weight_bytes_per_step},
      {"entry_bytes_per_step", r.entry_bytes_per_step},
      {"read_bytes_per_s", report.bandwidth},
      {"floor_tokens_per_s", report.floor_tokens_per_s()},
      {"share_of_floor", report.share_of_floor()},
      {"peak_rss_bytes", report.peak_rss},
      {"growth", growth}};
  if (r.memory_in_use) {
    json["memory_in_use_bytes"] = *r.memory_in_use;
  }
  return json;
}

std::string title(const BenchOptions& options, const Setup& setup, const Report& report) {
  const kvcache::CacheConfig& cache = setup.engine.cache;
  std::string text = fmt::format("{}, weights {}, {} cache in {}", setup.name, options.load.weights,
                                 kvcache::rule_name(cache.rule), ops::format_name(cache.format));
  if (cache.traits().marks) {
    text += fmt::format(", window {}", cache.window);
  }
  if (setup.evict_rate) {
    text += fmt::format(", {:.1f}% drawn", 100.0 * *setup.evict_rate);
  }
  if (setup.head_spread > 0.0) {
    text += fmt::format(", heads keep {:g} to {:g} times as many", 1.0 - setup.head_spread,
                        1.0 + setup.head_spread);
  }
  return text + fmt::format(", {} threads, batch {}", thread_count(), report.result.batch);
}

std::string table(const BenchOptions& options, const Setup& setup, const Report& report) {
  const BenchResult& r = report.result;
  const auto bytes = [](std::size_t count) { return readable_bytes(static_cast<double>(count)); };
  const auto speed = [](const std::vector<double>& runs) {
    return fmt::format("{:>10.2f} tokens/s  (median of {}, {:.2f} to {:.2f})", median(runs),
                       runs.size(), *std::ranges::min_element(runs),
                       *std::ranges::max_element(runs));
  };
  std::string text = title(options, setup, report) + "\n\n";
  const auto row = [&](const std::string& name, const std::string& value) {
    text += fmt::format("  {:<24}{}\n", name, value);
  };
  row(fmt::format("prefill {} @ {}", setup.plan.prefill, setup.plan.prefill_depth()),
      speed(r.prefill_tokens_per_s));
  row(fmt::format("decode {} @ {}", setup.plan.generate, setup.plan.decode_depth()),
      speed(r.decode_tokens_per_s));
  row("decode floor", fmt::format("{:>10.2f} tokens/s  {:.1f}% of it reached",
                                  report.floor_tokens_per_s(), 100.0 * report.share_of_floor()));
  row("read per step",
      fmt::format("{:>10} weights + {} entries at {}/s", bytes(report.weight_bytes_per_step),
                  bytes(r.entry_bytes_per_step), readable_bytes(report.bandwidth)));
  row("KV cache", fmt::format("{:>10} for {} when dense, {:.2f}x fewer entries", bytes(r.kv_bytes),
                              bytes(r.dense_bytes), r.compression_ratio));
  if (r.memory_in_use) {
    row("memory in use", fmt::format("{:>10} of the device", bytes(*r.memory_in_use)));
  }
  row("peak memory", fmt::format("{:>10} of the host", bytes(report.peak_rss)));
  return text;
}

void measure(const BenchOptions& options, const Setup& setup, const engine::Backend& backend) {
  Report report;
  report.result = run_bench(backend, setup.engine, setup.plan);
  report.weight_bytes_per_step = backend.weight_bytes_per_step(report.result.batch);
  report.peak_rss = peak_resident_bytes();  // before the bandwidth test takes its buffer
  report.bandwidth = backend.read_bandwidth();
  if (options.json) {
    print_json(to_json(options, setup, report));
  } else {
    print(table(options, setup, report));
  }
}

int run_bench_command(const BenchOptions& options) {
  require(options.load.model.empty() != options.shape.empty(),
          "either --model or --shape is needed");
  Setup setup;
  const auto model = place_model(options, setup);
  for (const int batch : options.batches) {
    if (setup.plan.batch) {
      setup.plan.batch = batch;
      setup.engine.max_sequences = batch;
    }
    measure(options, setup, *model->backend);
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
            "As many sequences as --kv-gib holds when decoding ends, up to 512 (default: off)");
  plan.flag("--growth", options.growth,
            "Record the cache's bytes after each chunk of the first prompt (default: off)");
  plan.option("--repeat", options.repeat, "R", "Repetitions; the median is reported");
  plan.open_option("--evict-rate", options.evict_rate, "R",
                   "dms, dmc: draw decisions so that this share is evicted or merged (default: the "
                   "model decides)");
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
      "the time it takes to read weights and entries once. For dms and dmc, --cr draws decisions "
      "that give this ratio at the depth of decoding; a shape's dms window is 256 unless given",
      options, run_bench_command);
  const FlagGroup own(*command);
  add_model_flag(own, options->load.model);
  own.open_option(
      "--shape", options->shape, "NAME",
      fmt::format("Random weights instead: {} (no default)", fmt::join(shape_names(), ", ")));
  add_json_flag(own, options->json);
  add_plan_flags(*command, *options);
  add_run_flags(*command, options->load);
}

}  // namespace winnow::cli
