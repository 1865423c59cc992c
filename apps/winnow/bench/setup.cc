#include "apps/winnow/bench/setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "apps/winnow/output.h"
#include "apps/winnow/shapes.h"
#include "base/device_list.h"
#include "base/error.h"
#include "base/host_memory.h"
#include "base/threads.h"
#include "engine/draft_options.h"
#include "engine/options.h"
#include "engine/state_source.h"
#include "engine/weight_memory.h"
#include "model/checkpoint.h"
#include "model/cost.h"
#include "parallel/rank_device.h"

namespace winnow::cli {
namespace {

constexpr int kDefaultWindow = 256;
constexpr int kMost = 1 << 24;  // maximum of any count

BenchPlan plan_of(const BenchOptions& options) {
  require(!options.context || !options.depth, "--context and --depth exclude each other");
  require(!options.context || !options.prefill,
          "--prefill goes with --depth; --context is the prompt's length already");
  BenchPlan plan{.depth = options.depth,
                 .prefill = options.context.value_or(options.prefill.value_or(512)),
                 .generate = options.generate,
                 .batch = options.batches.front(),
                 .computed = options.computed,
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
  check("--computed", plan.computed.value_or(1), 1);
  require(!plan.computed || !plan.depth,
          "--computed: goes with --context; with --depth every sequence has a prompt to measure");
  if (options.fit) {
    require(options.load.kv_gib > 0.0 && !options.depth && options.batches == std::vector{1},
            "--fit: needs --kv-gib and --context, and excludes --batch and --depth");
    plan.batch.reset();
  }
  return plan;
}

// --load, if it was given.
std::optional<FullLoadPlan> load_of(const BenchOptions& options) {
  if (options.lengths.empty()) {
    require(!options.requests, "--requests: goes with --load");
    require(!options.max_sequences, "--max-sequences: goes with --load; --batch sets it here");
    return std::nullopt;
  }
  require(
      !options.context && !options.depth && !options.prefill && !options.fit && !options.growth &&
          !options.computed && options.batches == std::vector{1},
      "--load: excludes --context, --depth, --prefill, --batch, --fit, --computed and --growth");
  FullLoadPlan plan;
  plan.requests = options.requests.value_or(plan.requests);
  const std::string& lengths = options.lengths;
  const char* const end = lengths.data() + lengths.size();
  const auto input = std::from_chars(lengths.data(), end, plan.input);
  const bool slash = input.ec == std::errc() && input.ptr != end && *input.ptr == '/';
  auto output = slash ? std::from_chars(input.ptr + 1, end, plan.least_output) : input;
  plan.output = plan.least_output;
  if (output.ec == std::errc() && output.ptr != end && *output.ptr == '-') {
    output = std::from_chars(output.ptr + 1, end, plan.output);
  }
  require(slash && output.ec == std::errc() && output.ptr == end && plan.input >= 1 &&
              plan.least_output >= 1 && plan.output >= plan.least_output && plan.input <= kMost &&
              plan.output <= kMost,
          "--load {}: expected two lengths, such as 1000/1000 or 1000/200-1000", lengths);
  require(plan.requests >= 1 && plan.requests <= kMost, "--requests {}: expected 1 to {}",
          plan.requests, kMost);
  require(options.max_sequences.value_or(1) >= 1, "--max-sequences {}: expected at least 1",
          options.max_sequences.value_or(1));
  return plan;
}

// --prefix, if it was given.
std::optional<FirstTokenPlan> first_token_of(const BenchOptions& options) {
  if (!options.prefix) {
    return std::nullopt;
  }
  require(!options.context && !options.depth && !options.prefill && !options.fit &&
              !options.growth && !options.computed && options.lengths.empty() &&
              options.batches == std::vector{1},
          "--prefix: excludes --context, --depth, --prefill, --batch, --fit, --computed, --growth "
          "and --load");
  require(options.load.host_gib != 0.0, "--prefix: needs --host-gib, with room for two states");
  require(*options.prefix >= engine::kLeastPrefix && *options.prefix <= kMost,
          "--prefix {}: expected {} to {}", *options.prefix, engine::kLeastPrefix, kMost);
  return FirstTokenPlan{.prefix = *options.prefix, .repeat = options.repeat};
}

// The share of tokens to evict (DMS) or merge (DMC) for a ratio of `cr` over all layers at `depth`.
// Windows and sliding layers do not depend on decisions.
double rate_for(double cr, const kvcache::RuleTraits& rule, int window, int depth,
                const model::ModelSpec& spec) {
  double heads = 0.0;  // heads that decide
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

// The spread of the heads' compression when they evict the share `rate` of their tokens.
double spread_for(double spread, std::optional<double> rate) {
  require(rate.has_value(), "--head-spread goes with drawn decisions: --evict-rate or --cr");
  require(spread >= 0.0 && spread <= 1.0, "--head-spread {}: expected 0 to 1", spread);
  const double most = (1.0 - *rate) * (1.0 + spread);
  require(most <= 1.0, "--head-spread {}: a head would keep {:.2f} times its tokens", spread, most);
  return spread;
}

// Adds to a model without a retrofit what the rule reads, so that decisions can be drawn.
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
  setup.load = load_of(options);
  setup.first_token = first_token_of(options);
  if (setup.first_token) {
    setup.plan.prefill = setup.first_token->prefix;
  }
  if (const int most = setup.plan.decode_depth();
      setup.config.max_positions > 0 && most > setup.config.max_positions) {
    print_note(
        fmt::format("winnow: {} tokens are more than the model's {} positions: its speed "
                    "there is measured, its texts would be of no use\n",
                    grouped(most), grouped(setup.config.max_positions)));
  }
  setup.evict_rate = options.evict_rate;
  const bool retrofitted = setup.config.dms || setup.config.dmc;
  prepare_for_drawn_decisions(options.load, setup.config);
  LoadOptions load = options.load;
  const kvcache::RuleTraits& rule = kvcache::traits_of(
      kvcache::parse_rule(load.cache).value_or(engine::trained_rule(setup.config)));
  if (rule.learned_alone()) {
    load.cr.reset();  // means a rate here
  }
  if (!options.draft_shape.empty()) {
    load.draft_model = options.draft_shape;
  }
  setup.engine = engine::resolve_options(load, setup.config);
  if (setup.load) {
    setup.engine.max_sequences = options.max_sequences.value_or(setup.engine.max_sequences);
  } else {
    setup.plan.drafted = setup.engine.draft_tokens;
    require(setup.plan.drafted == 0 || (options.batches == std::vector{1} && !options.fit),
            "speculation is measured with one sequence, or under --load; it excludes --batch and "
            "--fit");
    setup.engine.max_sequences = setup.plan.batch.value_or(BenchPlan::kMostFitted);
  }
  if (!rule.learned()) {
    require(!options.evict_rate && !options.head_spread,
            "--evict-rate and --head-spread go with --cache {}, this run is {}",
            kvcache::list_rules("and", [](const auto& other) { return other.learned(); }),
            rule.name);
    return setup;
  }
  require(!options.evict_rate || !options.load.cr || rule.has_budget,
          "--evict-rate and --cr exclude each other");
  if (options.load.cr && rule.learned_alone()) {
    const int depth =
        setup.load ? setup.load->input + setup.load->output : setup.plan.decode_depth();
    setup.evict_rate =
        rate_for(*options.load.cr, rule, setup.engine.cache.window, depth, setup.config);
  }
  require(retrofitted || setup.evict_rate,
          "--cache {}: the model decides nothing by itself; give --evict-rate{}", rule.name,
          rule.has_budget ? "" : " or --cr");
  require(!setup.evict_rate || (*setup.evict_rate >= 0.0 && *setup.evict_rate <= 1.0),
          "--evict-rate {}: expected 0 to 1", setup.evict_rate.value_or(0));
  if (options.head_spread) {
    setup.head_spread = spread_for(*options.head_spread, setup.evict_rate);
  }
  return setup;
}

// Checked first: drawing weights takes minutes, and a small machine would then kill the process.
void require_room(const Setup& setup) {
  const double bytes = engine::weight_bytes(setup.config, setup.engine.weights);
  const auto memory = static_cast<double>(total_host_memory());
  require(
      setup.engine.cuda_device || setup.engine.ranks > 1 || bytes < memory,
      "--shape {}: the weights take {}, this process may use {} of memory in all: see --weights",
      setup.name, readable_bytes(bytes), readable_bytes(memory));
}

// Where the ranks get their parts of the model, or a single rank the whole model.
engine::PartSource make_source(const BenchOptions& options, Setup& setup) {
  if (options.load.model.empty()) {
    require(options.load.probe.empty(), "--probe {}: goes with --model", options.load.probe);
    const auto shape = find_shape(options.shape);
    require(shape.has_value(), "--shape {}: expected one of {}", options.shape,
            fmt::join(shape_names(), ", "));
    setup = set_up(options, *shape, options.shape);
    require_room(setup);
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
  engine::note_memory(checkpoint, setup.engine);
  engine::PartSource source = engine::parts_of(checkpoint, setup.engine);
  source.whole = setup.config;
  return source;
}

using DraftFile = std::optional<model::Checkpoint>;

// The draft model: from --draft-model, or with random weights; null if there is none.
std::unique_ptr<const engine::LoadedModel> place_draft_model(const BenchOptions& options,
                                                             const DraftFile& file,
                                                             const model::Model& model,
                                                             Setup& setup) {
  if (options.draft_shape.empty()) {
    return engine::load_draft_model(options.load, file, model, setup.engine);
  }
  auto shape = find_shape(options.draft_shape);
  require(shape.has_value(), "--draft-shape {}: expected one of {}", options.draft_shape,
          fmt::join(shape_names(), ", "));
  shape->vocab = setup.config.vocab;
  const engine::EngineConfig own =
      engine::resolve_options(engine::options_of_draft_model(options.load), *shape);
  model::Model draft(*shape,
                     model::random_weights(*shape, DType::bf16, 2, engine::host_format(own)));
  return engine::place_draft_model(std::move(draft), own, /*parameters=*/0, setup.config,
                                   setup.engine);
}

}  // namespace

std::unique_ptr<const engine::LoadedModel> place_model(const BenchOptions& options, Setup& setup) {
  engine::PartSource source = make_source(options, setup);
  set_threads(options.load.threads);
  if (setup.evict_rate) {
    source.drawn = {.rate = *setup.evict_rate, .spread = setup.head_spread};
  }
  source.calibration = engine::load_calibration(options.load, source.whole);
  if (setup.engine.ranks > 1) {
    return engine::place_ranks(std::move(source), setup.engine, /*parameters=*/0);
  }
  const DraftFile draft_file = engine::open_draft_model(options.load, setup.config);
  if (setup.engine.cuda_device) {
    require_device(parallel::device_of_rank(
        *setup.engine.cuda_device, 0, setup.engine.ranks));  // making weights may take minutes
  }
  model::Model model(source.whole, source.load({}));
  model.calibrate(source.calibration);
  if (source.drawn) {
    model.draw_decisions(*source.drawn);
  }
  auto draft = place_draft_model(options, draft_file, model, setup);
  return engine::place_model(std::move(model), setup.engine, /*parameters=*/0, std::move(draft));
}

}  // namespace winnow::cli
