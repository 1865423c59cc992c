// winnow inspect: a checkpoint's properties, and the cost of its cache.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "api/llm_load.h"
#include "apps/winnow/command.h"
#include "apps/winnow/flags.h"
#include "apps/winnow/memory_plan.h"
#include "apps/winnow/model_memory.h"
#include "apps/winnow/model_names.h"
#include "apps/winnow/output.h"
#include "base/error.h"
#include "engine/options.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/gguf_model.h"
#include "model/model.h"
#include "ops/kv_page.h"
#include "tokenizer/tokenizer.h"

namespace winnow::cli {
namespace {

constexpr double kPer = 1024.0;  // tokens

struct InspectOptions {
  LoadOptions load;
  std::string kv_dtype = "bf16";
  MemoryPlan plan;
  bool json = false;
};

// The cost of caching, for all layers and heads together.
struct CacheCost {
  double dense = 0.0;                // bytes per 1K tokens, of the layers that grow
  std::optional<double> compressed;  // the same at the ratio of its training, if it is known
  double window = 0.0;               // bytes of DMS windows, whatever the text's length
  double sliding = 0.0;              // bytes of sliding layers, once their windows are full
  double state = 0.0;                // bytes of recurrent layers' state, whatever the text
};

double trained_cr(const model::ModelSpec& config) {
  const kvcache::RuleTraits& rule = kvcache::traits_of(engine::trained_rule(config));
  if (rule.marks) {
    return config.dms->target_cr;
  }
  return rule.merges ? config.dmc->target_cr : 0.0;
}

CacheCost cost_of(const model::ModelSpec& config, const ops::PageLayout& layout) {
  const auto entry_bytes = static_cast<double>(layout.entry_bytes());
  double growing = 0.0;  // bytes per token
  CacheCost cost;
  for (const model::LayerSpec& layer : config.layers) {
    if (const model::AttentionSpec* attention = layer.attention(); layer.stores()) {
      const double per_entry = entry_bytes * attention->kv_heads;
      growing += layer.compresses() ? per_entry : 0.0;
      cost.sliding += layer.compresses() ? 0.0 : per_entry * attention->reach.width;
    }
  }
  if (const model::RecurrentSpec* recurrent = config.recurrent()) {
    cost.state = 1.0 * sizeof(float) * recurrent->state_size() *
                 config.recurrent_before(config.layer_count());
  }
  cost.dense = growing * kPer;
  if (const double cr = trained_cr(config); cr > 0.0) {
    cost.compressed = cost.dense / cr;
  }
  if (kvcache::traits_of(engine::trained_rule(config)).marks) {
    cost.window = growing * (config.dms->window + 1);
  }
  return cost;
}

nlohmann::ordered_json retrofit_json(const model::ModelSpec& config) {
  const auto known = [](double cr) {
    return cr > 0.0 ? nlohmann::ordered_json(cr) : nlohmann::ordered_json();
  };
  if (config.dms) {
    const model::DmsConfig& dms = *config.dms;
    return {{"kind", "dms"},
            {"evicts", dms.evict},
            {"window", dms.window},
            {"decision", dms.source == model::DmsConfig::Source::borrowed ? "borrowed" : "adapter"},
            {"decision_shift", dms.shift},
            {"per_layer", dms.per_layer},
            {"target_cr", known(dms.target_cr)}};
  }
  if (config.dmc) {
    return {{"kind", "dmc"}, {"target_cr", known(config.dmc->target_cr)}};
  }
  return nullptr;
}

const char* decision_text(const model::DmsConfig& dms) {
  if (dms.source == model::DmsConfig::Source::borrowed) {
    return "a borrowed query channel";
  }
  switch (dms.adapter.kind) {
    case model::AdapterSpec::Kind::mlp:
      return "an adapter with a hidden layer";
    case model::AdapterSpec::Kind::gate:
      return "an adapter of keys and queries";
    case model::AdapterSpec::Kind::linear:
      return "an adapter";
  }
  return "";
}

std::string retrofit_text(const model::ModelSpec& config) {
  const auto target = [](double cr) {
    return cr > 0.0 ? fmt::format("target {:g}x", cr) : std::string("target not said");
  };
  if (config.dms) {
    const model::DmsConfig& dms = *config.dms;
    return fmt::format("DMS (learned eviction), {}, window {}, decision from {}, shift {}{}",
                       target(dms.target_cr), dms.window, decision_text(dms), dms.shift,
                       dms.evict ? "" : ", eviction disabled");
  }
  if (config.dmc) {
    const model::DmcConfig& dmc = *config.dmc;
    const std::string how = dmc.pooled > 0  ? fmt::format("every {} tokens merged", dmc.pooled)
                            : dmc.per_layer ? std::string("learned merging, per layer")
                                            : std::string("learned merging");
    return fmt::format("DMC ({}), {}", how, target(dmc.target_cr));
  }
  return "none: a dense cache";
}

// Active parameters per token: all except the experts that it does not use.
std::int64_t active_parameters(const model::Checkpoint& checkpoint) {
  const model::ModelSpec& config = checkpoint.spec();
  std::int64_t idle = 0;
  for (const model::LayerSpec& layer : config.layers) {
    const model::FeedForwardSpec& what = layer.feed_forward;
    if (what.experts) {
      const std::int64_t width = what.intermediate;
      const std::int64_t biases = what.bias ? 2 * width + config.hidden : 0;
      idle += (what.experts->count - what.experts->active) * (3 * width * config.hidden + biases);
    }
  }
  return checkpoint.parameter_count() - idle;
}

const char* kind_name(model::RecurrentSpec::Kind kind) {
  using Kind = model::RecurrentSpec::Kind;
  return kind == Kind::delta_net    ? "delta_net"
         : kind == Kind::short_conv ? "short_conv"
                                    : "state_space";
}

nlohmann::ordered_json recurrent_json(const model::ModelSpec& config) {
  const model::RecurrentSpec* recurrent = config.recurrent();
  if (recurrent == nullptr) {
    return nullptr;
  }
  nlohmann::ordered_json json = {{"kind", kind_name(recurrent->kind)},
                                 {"layers", config.recurrent_before(config.layer_count())},
                                 {"channels", recurrent->channels()},
                                 {"convolution", recurrent->taps}};
  if (recurrent->has_matrices()) {
    json.update({{"key_heads", recurrent->heads.key_heads},
                 {"value_heads", recurrent->heads.value_heads},
                 {"key_dim", recurrent->heads.key_dim},
                 {"value_dim", recurrent->heads.value_dim}});
  }
  return json;
}

std::string recurrent_text(const model::RecurrentSpec& recurrent) {
  if (!recurrent.has_matrices()) {
    return fmt::format("convolutions of {} channels over {} tokens", recurrent.channels(),
                       recurrent.taps);
  }
  const ops::DeltaRuleShape& heads = recurrent.heads;
  return fmt::format("{}, {} heads of {} x {}",
                     heads.corrects ? "gated delta nets" : "state spaces (Mamba 2)",
                     heads.value_heads, heads.key_dim, heads.value_dim);
}

nlohmann::ordered_json experts_json(const model::ModelSpec& config) {
  const model::FeedForwardSpec* what = config.experts();
  if (what == nullptr) {
    return nullptr;
  }
  const auto layers = std::ranges::count_if(config.layers, [](const model::LayerSpec& layer) {
    return layer.feed_forward.experts.has_value();
  });
  return {{"count", what->experts->count},
          {"active", what->experts->active},
          {"intermediate", what->intermediate},
          {"shared_intermediate", what->experts->shared_intermediate},
          {"layers", layers}};
}

std::string mlp_text(const model::ModelSpec& config) {
  std::string text =
      config.dense_width() > 0 ? fmt::format("MLP {}", config.dense_width()) : std::string();
  if (const model::FeedForwardSpec* what = config.experts()) {
    text += fmt::format("{}{} experts of {}, {} active", text.empty() ? "" : ", ",
                        what->experts->count, what->intermediate, what->experts->active);
  }
  return text;
}

nlohmann::ordered_json to_json(const model::Checkpoint& checkpoint, const InspectOptions& options,
                               const CacheCost& cost, const ModelMemory& memory) {
  using Json = nlohmann::ordered_json;
  const model::ModelSpec& config = checkpoint.spec();
  return {{"architecture", config.family},
          {"layers", config.layer_count()},
          {"hidden", config.hidden},
          {"heads", config.attention().heads},
          {"kv_heads", config.attention().kv_heads},
          {"head_dim", config.attention().head_dim},
          {"latent", config.has_latents() ? Json(config.attention().latent->rank) : Json()},
          {"intermediate", config.dense_width() > 0 ? Json(config.dense_width()) : Json()},
          {"experts", experts_json(config)},
          {"recurrent", recurrent_json(config)},
          {"vocab", config.vocab},
          {"max_positions", config.max_positions},
          {"tied_embeddings", config.tied_embeddings},
          {"dtype", dtype_name(config.dtype)},
          {"parameters", checkpoint.parameter_count()},
          {"active_parameters", active_parameters(checkpoint)},
          {"retrofit", retrofit_json(config)},
          {"kv_cache",
           {{"dtype", options.kv_dtype},
            {"dense_bytes_per_1k_tokens", cost.dense},
            {"compressed_bytes_per_1k_tokens", cost.compressed ? Json(*cost.compressed) : Json()},
            {"window_bytes", cost.window},
            {"sliding_layer_bytes", cost.sliding},
            {"recurrent_state_bytes", cost.state}}},
          {"memory", memory_json(memory)}};
}

std::string attention_text(const model::AttentionSpec& attention) {
  if (const auto& latent = attention.latent) {
    return fmt::format("{} query heads, one latent of {} and {} rotated channels", attention.heads,
                       latent->rank, attention.rotated_dim());
  }
  return fmt::format("{} query heads, {} KV heads of {}", attention.heads, attention.kv_heads,
                     attention.head_dim);
}

std::string table(const model::Checkpoint& checkpoint, const InspectOptions& options,
                  const CacheCost& cost, const ModelMemory& memory) {
  const model::ModelSpec& config = checkpoint.spec();
  std::string text = fmt::format("{}\n\n", options.load.model);
  const auto row = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<14}{}\n", name, value);
  };
  row("architecture", fmt::format("{}, {} layers, hidden {}, {}", config.family,
                                  config.layer_count(), config.hidden, mlp_text(config)));
  row("attention", attention_text(config.attention()));
  if (const model::RecurrentSpec* recurrent = config.recurrent()) {
    row("recurrent",
        fmt::format("{} of the layers: {}", config.recurrent_before(config.layer_count()),
                    recurrent_text(*recurrent)));
  }
  row("vocabulary", fmt::format("{} tokens, {} embeddings", grouped(config.vocab),
                                config.tied_embeddings ? "tied" : "untied"));
  row("positions", grouped(config.max_positions));
  row("parameters",
      fmt::format(
          "{} in {}{}", grouped(checkpoint.parameter_count()), dtype_name(config.dtype),
          config.experts() == nullptr
              ? std::string()
              : fmt::format(", {} of them active", grouped(active_parameters(checkpoint)))));
  row("retrofit", retrofit_text(config));
  row("KV cache",
      fmt::format("{} per 1K tokens dense, in {}", readable_bytes(cost.dense), options.kv_dtype));
  if (cost.compressed) {
    row("", fmt::format(
                "{} per 1K tokens compressed, at the target ratio, which eval perplexity checks{}",
                readable_bytes(*cost.compressed),
                cost.window > 0.0
                    ? fmt::format(", plus at most {} for windows", readable_bytes(cost.window))
                    : std::string()));
  }
  if (!cost.compressed && cost.dense > 0.0) {
    constexpr double kUsualRatio = 8.0;
    constexpr int kUsualWindow = 256;  // of a retrofit
    const bool is_plain = engine::trained_rule(config) == kvcache::RuleKind::dense;
    std::string compressed = fmt::format("{} per 1K tokens compressed, if {} for {:.0f}x",
                                         readable_bytes(cost.dense / kUsualRatio),
                                         is_plain ? "retrofitted" : "it was trained", kUsualRatio);
    if (is_plain) {
      compressed +=
          fmt::format(", plus at most {} for windows of {} tokens",
                      readable_bytes(cost.dense / kPer * (kUsualWindow + 1)), kUsualWindow);
    }
    row("", compressed);
  }
  if (cost.sliding > 0.0) {
    row("", fmt::format("and up to {} for sliding layers", readable_bytes(cost.sliding)));
  }
  if (cost.state > 0.0) {
    row("", fmt::format("and {} a sequence for recurrent layers", readable_bytes(cost.state)));
  }
  row("memory", chat_text(memory));
  for (const FormatMemory& format : memory.formats) {
    row(&format == &memory.formats.front() ? "weights" : "", format_text(format));
  }
  if (const std::string stored = stored_text(memory); !stored.empty()) {
    row("stored as", stored);
  }
  return text;
}

std::string architectures() {
  return fmt::format(
      "\"architectures\" of config.json, for a retrofit with DMS or DMC behind it:\n  {}\n"
      "A class for images or sound, such as Gemma3ForConditionalGeneration, is read for its text "
      "if "
      "\"text_config\" is of one of these.\n"
      "\"general.architecture\" of GGUF files:\n  {}",
      fmt::join(model::known_architectures(), "\n  "),
      fmt::join(model::known_gguf_architectures(), "\n  "));
}

// What was read of a model that is not here; null for one that is.
nlohmann::ordered_json headers_json(const DescribedModel& model) {
  if (model.headers == nullptr) {
    return nullptr;
  }
  const hub::PulledHeaders& pulled = model.headers->pulled();
  return {{"read_bytes", pulled.read}, {"total_bytes", pulled.total}};
}

std::string headers_text(const DescribedModel& model, const std::string& name) {
  if (model.headers == nullptr) {
    return "";
  }
  const hub::PulledHeaders& pulled = model.headers->pulled();
  return fmt::format(
      "\n  Only configuration and headers were read, {} of {}; winnow pull {} downloads the "
      "model.\n",
      readable_bytes(static_cast<double>(pulled.read)),
      readable_bytes(static_cast<double>(pulled.total)), name);
}

// Why texts cannot be given to a model whose files are here; empty: they can.
std::string tokenizer_error(const DescribedModel& model) {
  if (model.headers != nullptr) {
    return "";
  }
  try {
    load_tokenizer(model.path);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

int describe(const InspectOptions& options, const DescribedModel& model) {
  const ops::EntryFormat format = engine::parse_kv_dtype(options.kv_dtype);
  LoadOptions load = options.load;
  load.model = model.path;
  const model::Checkpoint checkpoint = engine::open_checkpoint(load);
  const CacheCost cost =
      cost_of(checkpoint.spec(), model::cache_shape(checkpoint.spec()).page_layout(format));
  const ModelMemory memory = memory_of(checkpoint, format, options.plan);
  const std::string wrong_tokenizer = tokenizer_error(model);
  if (options.json) {
    nlohmann::ordered_json json = to_json(checkpoint, options, cost, memory);
    json["tokenizer_error"] = wrong_tokenizer.empty() ? nullptr : nlohmann::json(wrong_tokenizer);
    json["headers_only"] = headers_json(model);
    print_json(json);
  } else {
    print(table(checkpoint, options, cost, memory) +
          (wrong_tokenizer.empty()
               ? ""
               : fmt::format("\n  It cannot take texts: {}\n", wrong_tokenizer)) +
          headers_text(model, options.load.model));
  }
  return kSuccess;
}

int run_inspect(const InspectOptions& options) {
  check(options.plan);
  const DescribedModel model = find_described_model(options.load.model);
  if (model.headers == nullptr) {
    return describe(options, model);
  }
  try {
    return describe(options, model);
  } catch (const Error& error) {
    throw Error(model.headers->with_name(error.what()));
  }
}

}  // namespace

void add_inspect(CLI::App& app, Run& run) {
  std::shared_ptr<InspectOptions> options;
  CLI::App* command = add_command(app, run, "inspect",
                                  "Shows a checkpoint's architecture, its retrofit, the size of "
                                  "its cache and what memory it takes",
                                  options, run_inspect);
  const FlagGroup own(*command);
  own.open_option(
         kModelFlag, options->load.model, kDescribedType,
         "Hugging Face model directory, a GGUF file, or org/name[@revision] on the Hub, of "
         "which only headers are read unless it is in the cache (no default)")
      ->required();
  add_probe_flags(*command, options->load.probe, options->load.probe_threshold);
  own.option("--kv-dtype", options->kv_dtype, "TYPE", "Entries in bf16, fp8, int8, q4 or fp32");
  add_plan_flags(own, options->plan);
  add_json_flag(own, options->json);
  command->set_version_flag("--architectures", architectures,
                            "List the architectures that winnow reads, and end");
}

}  // namespace winnow::cli
