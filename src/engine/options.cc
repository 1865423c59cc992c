#include "engine/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/host_memory.h"
#include "engine/cache_memory.h"
#include "engine/draft_options.h"
#include "model/model.h"

namespace winnow::engine {
namespace {

using kvcache::RuleKind;

/// A format's name in other programs and here.
struct ForeignName {
  std::string_view theirs;
  std::string_view ours;
};

/// " (is int8 meant?)", or nothing if the name is unknown.
std::string meant(std::string_view given, std::span<const ForeignName> names) {
  const auto found = std::ranges::find(names, given, &ForeignName::theirs);
  return found == names.end() ? "" : fmt::format(" (is {} meant?)", found->ours);
}

RuleKind parse_cache(const LoadOptions& options, const model::ModelSpec& model) {
  if (options.cache == "auto") {
    return trained_rule(model);
  }
  const auto rule = kvcache::parse_rule(options.cache);
  require(rule.has_value(), "--cache {}: expected auto, {}", options.cache,
          kvcache::list_rules("or"));
  const kvcache::RuleTraits& traits = kvcache::traits_of(*rule);
  require(
      (!traits.marks || model.dms) && (!traits.merges || model.dmc),
      "--cache {}: the model was not trained for it (winnow retrofit does that); its rule is {}. "
      "--cache h2o --cr 4 compresses any model",
      traits.name, kvcache::rule_name(trained_rule(model)));
  return *rule;
}

double resolve_cr(const LoadOptions& options, RuleKind rule) {
  const kvcache::RuleTraits& traits = kvcache::traits_of(rule);
  const double asked = options.cr.value_or(1.0);
  require(!options.cr || !traits.learned_alone(),
          "--cr {}: the ratio of --cache {} was fixed by training: leave out --cr", asked,
          traits.name);
  require(!options.cr || traits.has_budget,
          "--cr {}: a {} cache keeps everything; --cache h2o --cr {} compresses any model", asked,
          traits.name, asked);
  require(options.cr || !traits.has_budget, "--cache {} needs --cr, the compression ratio",
          traits.name);
  require(std::isfinite(asked) && asked >= 1.0 && asked <= 1e6,
          "--cr {}: expected a number from 1 to 1000000", asked);
  return asked;
}

void check_calibration(const LoadOptions& options, const kvcache::RuleTraits& rule,
                       const model::ModelSpec& model) {
  const std::string& file = options.calibration;
  require(rule.calibrated || file.empty(),
          "--calibration {}: goes with --cache {} only, this is {}", file,
          kvcache::list_rules("or", [](const auto& other) { return other.calibrated; }), rule.name);
  for (int layer = 0; layer < model.layer_count() && rule.calibrated; ++layer) {
    const model::LayerSpec& spec = model.layer(layer);
    require(!spec.compresses() ||
                (spec.attention()->rope && !spec.attention()->rope->frequencies.empty()),
            "--cache {}: layer {} has no RoPE, by whose frequencies it scores entries", rule.name,
            layer);
  }
  require(!rule.calibrated || !file.empty(),
          "--cache {} needs --calibration FILE; winnow calibrate --model DIR --text TEXT --output "
          "FILE makes one",
          rule.name);
}

void resolve_window(const LoadOptions& options, const model::ModelSpec& model,
                    kvcache::CacheConfig& cache) {
  if (!cache.traits().marks) {
    require(!options.window, "--window {}: only --cache {} has a window to set, this run is {}",
            options.window.value_or(0),
            kvcache::list_rules("or", [](const auto& rule) { return rule.marks; }),
            cache.traits().name);
    return;
  }
  constexpr int kMaxWindow = 1 << 30;
  cache.window = options.window.value_or(model.dms->window);
  cache.shift = model.dms->shift;
  require(cache.window >= 0 && cache.window <= kMaxWindow, "--window {}: expected 0 to {}",
          cache.window, kMaxWindow);
  cache.window = std::min(cache.window, model.max_positions);  // no sequence is longer
}

// `shape`: of all ranks together.
std::size_t cache_limit(double gib, bool on_cpu, const kvcache::CacheConfig& cache,
                        const kvcache::CacheShape& shape) {
  require(std::isfinite(gib) && gib >= 0.0 && gib <= 1e5, "--kv-gib {}: expected 0 to 100000", gib);
  if (gib == 0.0) {
    return kAllThereIs;
  }
  const auto bytes = static_cast<std::size_t>(gib * 0x1p30);
  const std::size_t least = least_cache_bytes(cache, shape);
  constexpr double kDigits = 1e6;  // decimal places: the number in the message is rounded up
  require(bytes >= least,
          "--kv-gib {}: has no room for one page of each KV head; the least is {:.6f}", gib,
          std::ceil(static_cast<double>(least) / 0x1p30 * kDigits) / kDigits);
  require(!on_cpu || bytes <= total_host_memory(),
          "--kv-gib {}: this process may use {:.1f} GiB of memory in all", gib,
          static_cast<double>(total_host_memory()) / 0x1p30);
  return bytes;
}

// The host's memory for prefixes and preempted sequences; 0: none.
std::size_t host_limit(const LoadOptions& options) {
  const double gib = options.host_gib;
  require(std::isfinite(gib) && gib >= 0.0 && gib <= 1e5, "--host-gib {}: expected 0 to 100000",
          gib);
  const auto bytes = static_cast<std::size_t>(gib * 0x1p30);
  require(bytes <= total_host_memory(),
          "--host-gib {}: this process may use {:.1f} GiB of memory in all", gib,
          static_cast<double>(total_host_memory()) / 0x1p30);
  return bytes;
}

// Ranks that share a KV head each see some of its queries.
void require_whole_groups(const EngineConfig& config, const model::ModelSpec& model) {
  const int heads = model.compressing_attention().kv_heads;
  require(config.ranks <= heads || !config.cache.traits().needs_groups(),
          "--cache {} with --tensor-parallel {}: chooses entries of a KV head by all its queries, "
          "which one rank must have: use at most {} ranks",
          config.cache.traits().name, config.ranks, heads);
}

}  // namespace

std::size_t least_cache_bytes(const kvcache::CacheConfig& config,
                              const kvcache::CacheShape& shape) {
  // DMC's open entries have pages of their own.
  const ops::EntryFormat format = config.traits().merges ? ops::EntryFormat::f32 : config.format;
  constexpr std::size_t kTables = 2 * sizeof(std::uint32_t);  // per page, on a device
  const std::size_t page = shape.page_layout(format).page_bytes() + kTables;
  const auto heads = static_cast<std::size_t>(shape.held_heads());
  return heads * page + shape.states.bytes();
}

kvcache::RuleKind trained_rule(const model::ModelSpec& model) {
  if (model.dms && model.dms->evict) {
    return RuleKind::dms;
  }
  return model.dmc ? RuleKind::dmc : RuleKind::dense;
}

std::optional<ops::WeightFormat> host_format(const EngineConfig& config) {
  if (config.cuda_device || config.weights == WeightStorage::as_stored) {
    return std::nullopt;
  }
  return config.weights == WeightStorage::int8 ? ops::WeightFormat::int8 : ops::WeightFormat::int4;
}

WeightStorage parse_weights(std::string_view name, bool on_cpu) {
  constexpr std::array<std::pair<std::string_view, WeightStorage>, 4> kNames{{
      {"auto", WeightStorage::as_stored},
      {"fp8", WeightStorage::fp8},
      {"int8", WeightStorage::int8},
      {"int4", WeightStorage::int4},
  }};
  const auto* found = std::ranges::find(kNames, name, &decltype(kNames)::value_type::first);
  constexpr std::string_view kAuto = "auto, which keeps a bf16 model in bf16,";
  constexpr auto kForeign = std::to_array<ForeignName>({{"q8", "int8"},
                                                        {"q8_0", "int8"},
                                                        {"q4", "int4"},
                                                        {"q4_0", "int4"},
                                                        {"q4_k_m", "int4"},
                                                        {"bf16", kAuto},
                                                        {"bfloat16", kAuto}});
  require(found != kNames.end(), "--weights {}: expected auto, fp8, int8 or int4{}", name,
          meant(name, kForeign));
  require(!on_cpu || found->second != WeightStorage::fp8,
          "--weights fp8: needs --device cuda; the CPU knows auto, int8 and int4");
  return found->second;
}

Computation parse_dtype(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, Computation>, 5> kNames{{
      {"bf16", {}},
      {"bfloat16", {}},
      {"auto", {}},
      {"fp32", {.type = DType::f32}},
      {"fp8", {.fp8_products = true}},
  }};
  constexpr auto kForeign = std::to_array<ForeignName>({{"float16", "bf16"},
                                                        {"half", "bf16"},
                                                        {"fp16", "bf16"},
                                                        {"float", "fp32"},
                                                        {"float32", "fp32"}});
  const auto* found = std::ranges::find(kNames, name, &decltype(kNames)::value_type::first);
  require(found != kNames.end(), "--dtype {}: expected bf16, fp32 or fp8{}", name,
          meant(name, kForeign));
  return found->second;
}

std::optional<int> parse_device(std::string_view device) {
  if (device == "cpu") {
    return std::nullopt;
  }
  int index = 0;
  const std::string_view number = device.substr(std::min<std::size_t>(device.size(), 5));
  const auto [end, code] = std::from_chars(number.begin(), number.end(), index);
  require(device == "cuda" || (device.starts_with("cuda:") && code == std::errc() &&
                               end == number.end() && index >= 0 && index < 1024),
          "--device {}: expected cpu, cuda or cuda:N", device);
  return index;
}

ops::EntryFormat parse_kv_dtype(std::string_view name) {
  constexpr auto kForeign = std::to_array<ForeignName>({{"q8_0", "int8"},
                                                        {"q8", "int8"},
                                                        {"q4_0", "q4"},
                                                        {"int4", "q4"},
                                                        {"f16", "bf16"},
                                                        {"fp16", "bf16"},
                                                        {"auto", "bf16"},
                                                        {"f32", "fp32"},
                                                        {"fp8_e4m3", "fp8"},
                                                        {"fp8_e5m2", "fp8"}});
  const auto* found = std::ranges::find(ops::kEntryFormats, name, ops::format_name);
  require(found != std::end(ops::kEntryFormats),
          "--kv-dtype {}: expected bf16, fp8, int8, q4 or fp32{}", name, meant(name, kForeign));
  return *found;
}

EngineConfig resolve_options(const LoadOptions& options, const model::ModelSpec& model) {
  require(options.threads >= 0 && options.threads <= 4096, "--threads {}: expected 0 to 4096",
          options.threads);
  require(options.chunk >= 0 && options.chunk <= 1 << 20, "--chunk {}: expected 0 to {}",
          options.chunk, 1 << 20);
  constexpr int kMostRanks = 64;
  require(options.tensor_parallel >= 1 && options.tensor_parallel <= kMostRanks,
          "--tensor-parallel {}: expected 1 to {}", options.tensor_parallel, kMostRanks);
  EngineConfig config;
  config.ranks = options.tensor_parallel;
  require(options.rank_exchange == "auto" || options.rank_exchange == "nccl",
          "--rank-exchange {}: expected auto or nccl", options.rank_exchange);
  config.ranks_use_nccl = options.rank_exchange == "nccl";
  config.cuda_device = parse_device(options.device);
  require(!config.ranks_use_nccl || (config.ranks > 1 && config.cuda_device),
          "--rank-exchange nccl: is for --tensor-parallel with --device cuda");
  const Computation computation = parse_dtype(options.dtype);
  config.compute = computation.type;
  require(!config.cuda_device || config.compute == DType::bf16,
          "--dtype fp32: runs on the CPU only; a CUDA device computes in bf16");
  require(!config.cuda_device || !options.deterministic,
          "--deterministic: runs on the CPU only so far");
  config.deterministic = options.deterministic;
  config.draft_tokens = parse_speculate(options);
  require(config.ranks == 1 || options.draft_model.empty(),
          "--draft-model with --tensor-parallel: runs on one rank only");
  require(config.ranks == 1 || !drafts_by_mtp(options),
          "--speculate {} with --tensor-parallel: runs on one rank only", options.speculate);
  config.weights = parse_weights(options.weights, !config.cuda_device);
  config.fp8_products = computation.fp8_products;
  require(!config.fp8_products || (config.cuda_device && config.weights == WeightStorage::fp8),
          "--dtype fp8: multiplies fp8 weights on a CUDA device; it needs --device cuda and "
          "--weights fp8");
  constexpr int kCpuChunk = 512;
  constexpr int kCudaChunk = 8192;
  config.step_tokens =
      options.chunk > 0 ? options.chunk : (config.cuda_device ? kCudaChunk : kCpuChunk);
  config.cache.rule = parse_cache(options, model);
  require(!config.cuda_device || config.cache.traits().has_kernels(),
          "--cache {}: runs on the CPU only; a CUDA device takes {}", config.cache.traits().name,
          kvcache::list_rules("or", [](const auto& rule) { return rule.has_kernels(); }));
  // Query statistics of 576 channels and 128 heads would be gigabytes per prompt, beyond --kv-gib.
  require((!config.cache.traits().notes_queries() && !config.cache.traits().calibrated) ||
              !model.has_latents(),
          "--cache {}: does not run with latent attention", config.cache.traits().name);
  // With several ranks, tests showed that whether memory suffices depends on other sequences.
  require(config.ranks == 1 || config.cache.traits().budget_of != kvcache::BudgetOf::answer,
          "--cache {} with --tensor-parallel: runs on one rank only", config.cache.traits().name);
  require_whole_groups(config, model);
  config.cache.cr = resolve_cr(options, config.cache.rule);
  check_calibration(options, config.cache.traits(), model);
  resolve_window(options, model, config.cache);
  config.cache.format =
      parse_kv_dtype(options.kv_dtype.empty() ? dtype_name(config.compute) : options.kv_dtype);
  config.cache.max_bytes = cache_limit(options.kv_gib, !config.cuda_device, config.cache,
                                       model::cache_shape(model, config.ranks));
  config.host_bytes = host_limit(options);
  if (options.reuse_prefixes) {
    config.reuse_prefixes = true;
    config.prefix_bytes = config.cache.max_bytes;  // until running sequences need the room
  }
  return config;
}

}  // namespace winnow::engine
