#include "winnow/llm.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/llm_chat.h"
#include "engine/llm_collector.h"
#include "engine/llm_load.h"
#include "tokenizer/tokenizer.h"

namespace winnow {
namespace {

ModelInfo describe(const engine::LoadedModel& loaded) {
  const ModelConfig& config = loaded.model.config();
  const kvcache::CacheConfig& cache = loaded.engine.cache;
  return {.family = std::string(engine::family_name(config.family)),
          .layers = config.layers,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .hidden = config.hidden,
          .vocab = config.vocab,
          .max_positions = config.max_positions,
          .parameters = loaded.parameters,
          .cache = std::string(kvcache::rule_name(cache.rule)),
          .kv_dtype = std::string(ops::format_name(cache.format)),
          .window = cache.rule == kvcache::RuleKind::dms ? cache.window : -1};
}

bool has_tokenizer(const std::filesystem::path& directory) {
  return std::filesystem::exists(directory / "tokenizer.json") ||
         std::filesystem::exists(directory / "tokenizer.model");
}

engine::Request make_request(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                             const ModelConfig& config) {
  const SamplingOptions& s = options.sampling;
  engine::Request request;
  request.prompt.assign(prompt.begin(), prompt.end());
  request.max_tokens = options.max_tokens;
  request.samples = options.samples;
  request.sampling = {.temperature = s.temperature,
                      .top_k = s.top_k,
                      .top_p = s.top_p,
                      .min_p = s.min_p,
                      .repetition_penalty = s.repetition_penalty,
                      .seed = s.seed};
  if (!options.ignore_eos) {
    request.stop_tokens = config.eos_tokens;
  }
  return request;
}

CacheStats to_stats(const engine::CacheUsage& usage, const ModelConfig& config) {
  CacheStats stats{.bytes = usage.bytes,
                   .dense_bytes = usage.dense_bytes,
                   .compression_ratio = usage.compression_ratio(),
                   .live_entries = usage.live_entries,
                   .per_layer_head = {}};
  for (auto head = usage.per_head.begin(); head != usage.per_head.end(); head += config.kv_heads) {
    stats.per_layer_head.emplace_back(head, head + config.kv_heads);
  }
  return stats;
}

double rate(std::int64_t tokens, double seconds) {
  return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0;
}

void set_rates(const engine::Throughput& before, const engine::Throughput& after,
               Generation& result) {
  result.prefill_tokens_per_s = rate(after.prefill_tokens - before.prefill_tokens,
                                     after.prefill_seconds - before.prefill_seconds);
  result.decode_tokens_per_s = rate(after.decode_tokens - before.decode_tokens,
                                    after.decode_seconds - before.decode_seconds);
}

// Leaves the engine idle whatever happens: a callback may throw.
class RequestGuard {
 public:
  RequestGuard(engine::Engine& engine, engine::RequestId id) : engine_(engine), id_(id) {}
  ~RequestGuard() {
    engine_.cancel(id_);
    while (!engine_.idle()) {
      engine_.step();
    }
  }
  RequestGuard(const RequestGuard&) = delete;
  RequestGuard& operator=(const RequestGuard&) = delete;

 private:
  engine::Engine& engine_;
  engine::RequestId id_;
};

}  // namespace

struct Llm::Impl {
  explicit Impl(const LoadOptions& options)
      : directory(options.model),
        loaded(engine::load_model(options)),
        engine(*loaded->backend, loaded->engine),
        info(describe(*loaded)) {
    if (has_tokenizer(directory)) {
      tokenizer = load_tokenizer(directory);
    }
  }

  [[nodiscard]] const Tokenizer& need_tokenizer() const {
    require(tokenizer != nullptr, "{}: has neither tokenizer.json nor tokenizer.model",
            directory.string());
    return *tokenizer;
  }

  // A request that was cancelled before it was given any cache has used none.
  CacheStats take_stats(engine::RequestId id, int sample) {
    try {
      return to_stats(engine.take_usage(id, sample), loaded->model.config());
    } catch (const Error&) {
      return {};
    }
  }

  std::filesystem::path directory;
  std::unique_ptr<const engine::LoadedModel> loaded;
  engine::Engine engine;
  std::unique_ptr<const Tokenizer> tokenizer;
  ModelInfo info;
};

Llm::Llm(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Llm::~Llm() = default;
Llm::Llm(Llm&&) noexcept = default;
Llm& Llm::operator=(Llm&&) noexcept = default;

Llm Llm::load(const LoadOptions& options) {
  return Llm(std::make_unique<Impl>(options));
}

const ModelInfo& Llm::info() const {
  return impl_->info;
}

std::vector<std::int32_t> Llm::tokenize(std::string_view text, bool add_special) const {
  return impl_->need_tokenizer().encode(text, {.add_special = add_special, .parse_special = true});
}

std::string Llm::detokenize(std::span<const std::int32_t> ids) const {
  return impl_->need_tokenizer().decode(ids, true);
}

std::string Llm::render_chat(std::span<const ChatMessage> messages) const {
  return engine::render_chat(impl_->directory, messages);
}

Generation Llm::generate(std::string_view prompt, const GenerateOptions& options,
                         const TextCallback& on_text) {
  return generate(tokenize(prompt, options.add_special), options, on_text);
}

Generation Llm::generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                         const TextCallback& on_text) {
  require(options.stop.empty() || impl_->tokenizer != nullptr,
          "--stop: a model without tokenizer has no text to stop at");
  engine::Engine& engine = impl_->engine;
  const ModelConfig& config = impl_->loaded->model.config();
  require(options.samples >= 1 && options.samples <= 4096, "--n {}: expected 1 to 4096",
          options.samples);
  engine::Collector collector(impl_->tokenizer.get(), options, on_text);
  const engine::Throughput before = engine.throughput();
  const engine::RequestId id = engine.submit(make_request(prompt, options, config));
  const int prompt_tokens = static_cast<int>(prompt.size());
  {
    const RequestGuard guard(engine, id);
    while (!engine.idle() && !collector.complete()) {
      for (const engine::TokenEvent& event : engine.step()) {
        collector.accept(event);
      }
      const auto prefilled = engine.throughput().prefill_tokens - before.prefill_tokens;
      const Progress progress{prompt_tokens, std::min(prompt_tokens, static_cast<int>(prefilled)),
                              collector.generated()};
      if (options.on_step && !options.on_step(progress)) {
        engine.cancel(id);
      }
    }
  }
  Generation result;
  result.samples = collector.take();
  result.prompt_tokens = prompt_tokens;
  for (int sample = 0; sample < options.samples; ++sample) {
    result.samples[static_cast<std::size_t>(sample)].kv = impl_->take_stats(id, sample);
  }
  set_rates(before, engine.throughput(), result);
  return result;
}

}  // namespace winnow
