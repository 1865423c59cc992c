#include "winnow/llm.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>
#include <utility>

#include "api/llm_batch.h"
#include "api/llm_chat.h"
#include "api/llm_load.h"
#include "api/llm_stream.h"
#include "api/same_vocabulary.h"
#include "base/error.h"
#include "engine/prompt_cache.h"
#include "hub/pull.h"
#include "tokenizer/tokenizer.h"

namespace winnow {
namespace {

ModelInfo describe(const engine::LoadedModel& loaded) {
  const model::ModelSpec& config = loaded.spec();
  const kvcache::CacheConfig& cache = loaded.engine.cache;
  return {.family = config.family,
          .layers = config.layer_count(),
          .cache_layers = config.attention_before(config.layer_count()),
          .heads = config.attention().heads,
          .kv_heads = config.attention().kv_heads,
          .head_dim = config.attention().head_dim,
          .hidden = config.hidden,
          .vocab = config.vocab,
          .max_positions = config.max_positions,
          .parameters = loaded.parameters,
          .cache = std::string(kvcache::rule_name(cache.rule)),
          .kv_dtype = std::string(ops::format_name(cache.format)),
          .window = cache.traits().marks ? cache.window : -1};
}

engine::Request make_request(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                             const model::ModelSpec& config) {
  engine::Request request;
  request.prompt.assign(prompt.begin(), prompt.end());
  request.max_tokens = options.max_tokens;
  request.samples = options.samples;
  request.sampling = options.sampling;
  request.logprobs = options.logprobs;
  require(!options.prompt_logprobs || options.logprobs >= 0,
          "log-probabilities of the prompt go with those of the answer");
  request.prompt_logprobs = options.prompt_logprobs ? options.logprobs : -1;
  if (!options.ignore_eos) {
    request.stop_tokens = config.eos_tokens;
  }
  return request;
}

// Withdraws an answer when its caller leaves, even by an exception.
class Withdrawal {
 public:
  Withdrawal(engine::Batch& batch, const std::shared_ptr<engine::Answer>& answer)
      : batch_(batch), answer_(answer) {}
  ~Withdrawal() { batch_.withdraw(answer_); }
  Withdrawal(const Withdrawal&) = delete;
  Withdrawal& operator=(const Withdrawal&) = delete;

 private:
  engine::Batch& batch_;
  const std::shared_ptr<engine::Answer>& answer_;
};

}  // namespace

struct Llm::Impl {
  explicit Impl(const LoadOptions& options)
      : directory(options.model),
        load_options(options),
        loaded(engine::load_model(options)),
        batch(*loaded->backend, loaded->engine),
        info(describe(*loaded)) {
    if (engine::has_tokenizer(directory)) {
      tokenizer = load_tokenizer(directory);
    }
  }

  [[nodiscard]] const Tokenizer& need_tokenizer() const {
    require(tokenizer != nullptr, "{}: has neither tokenizer.json nor tokenizer.model",
            directory.string());
    return *tokenizer;
  }

  // The kind of saved state with which this request can begin.
  [[nodiscard]] engine::StateKind kind_for(const engine::Request& request) {
    const std::lock_guard lock(digest_mutex);
    if (digest.empty()) {
      digest = engine::model_digest(load_options);
    }
    const int prompt = static_cast<int>(request.prompt.size());
    return {digest, loaded->cache_shape(), loaded->engine, {prompt, prompt + request.max_tokens}};
  }

  std::filesystem::path directory;
  LoadOptions load_options;
  std::unique_ptr<const engine::LoadedModel> loaded;
  engine::Batch batch;
  std::unique_ptr<const Tokenizer> tokenizer;
  ModelInfo info;
  std::mutex digest_mutex;
  std::string digest;  // of the checkpoint; empty until needed
};

Llm::Llm(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Llm::~Llm() = default;
Llm::Llm(Llm&&) noexcept = default;
Llm& Llm::operator=(Llm&&) noexcept = default;

Llm Llm::load(const LoadOptions& options) {
  LoadOptions found = options;
  found.model = hub::find_model(options.model);
  if (!options.probe.empty()) {
    found.probe = hub::find_model(options.probe, {}, hub::Purpose::probe);
  }
  if (!options.draft_model.empty()) {
    found.draft_model = hub::find_model(options.draft_model);
  }
  return Llm(std::make_shared<Impl>(found));
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

std::string Llm::render_chat(std::span<const ChatMessage> messages, Thinking thinking) const {
  return engine::render_chat(impl_->directory, messages, thinking);
}

Generation Llm::generate(std::string_view prompt, const GenerateOptions& options,
                         const TextCallback& on_text) {
  return generate(tokenize(prompt, options.add_special), options, on_text);
}

Generation Llm::generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                         const TextCallback& on_text) {
  Stream stream = start(prompt, options);
  while (stream.advance()) {
    for (const Piece& piece : stream.take()) {
      if (on_text && !piece.text.empty()) {
        on_text(piece.sample, piece.text);
      }
    }
    if (options.on_step && !options.on_step(stream.progress())) {
      stream.cancel();
    }
  }
  return stream.finish();
}

Stream Llm::start(std::span<const std::int32_t> prompt, const GenerateOptions& options) {
  require(options.stop.empty() || impl_->tokenizer != nullptr,
          "--stop: a model without tokenizer has no text to stop at");
  require(options.samples >= 1 && options.samples <= 4096, "--n {}: expected 1 to 4096",
          options.samples);
  const model::ModelSpec& config = impl_->loaded->spec();
  engine::Request request = make_request(prompt, options, config);
  std::optional<engine::PromptCache> cache;
  if (!options.prompt_cache.empty()) {
    engine::validate(request, config);
    cache.emplace(options.prompt_cache, impl_->kind_for(request), options.prompt_cache_read_only);
    cache->load(request);
  }
  const auto answer =
      std::make_shared<engine::Answer>(impl_->tokenizer.get(), options, std::move(request));
  impl_->batch.submit(answer);
  return Stream(std::make_unique<Stream::State>(impl_, impl_->batch, answer, std::move(cache)));
}

void Llm::logits(std::span<const std::int32_t> tokens, std::span<float> logits,
                 std::span<std::int32_t> live_entries,
                 const std::function<bool(const Progress&)>& on_step) {
  const model::ModelSpec& config = impl_->loaded->spec();
  const auto vocab = static_cast<std::size_t>(config.vocab);
  const auto heads = static_cast<std::size_t>(config.cached_heads());
  require(logits.empty() || logits.size() == tokens.size() * vocab,
          "logits: room for {} numbers was given, {} tokens have {} each", logits.size(),
          tokens.size(), vocab);
  require(live_entries.empty() || live_entries.size() == tokens.size() * heads,
          "live entries: room for {} numbers was given, {} tokens have {} each",
          live_entries.size(), tokens.size(), heads);
  engine::Request request;
  request.prompt.assign(tokens.begin(), tokens.end());
  request.max_tokens = 0;
  request.trace = true;
  if (!logits.empty()) {
    request.on_logits = [&](int position, std::span<const float> row) {
      std::ranges::copy(row, logits.subspan(static_cast<std::size_t>(position) * vocab).begin());
    };
  }
  const auto answer = std::make_shared<engine::Answer>(nullptr, GenerateOptions{},
                                                       std::move(request), live_entries);
  impl_->batch.submit(answer);
  const Withdrawal guard(impl_->batch, answer);
  while (impl_->batch.advance(*answer)) {
    if (on_step && !on_step(impl_->batch.progress(*answer))) {
      return;
    }
  }
  require(impl_->batch.finish(*answer).samples.front().finish_reason != "out_of_memory",
          "the cache has no room for {} tokens: allow it more memory with --kv-gib", tokens.size());
}

CacheMemory Llm::cache_memory() const {
  const engine::EngineStats stats = impl_->batch.stats();
  return {.bytes = stats.page_bytes,
          .capacity = stats.capacity_bytes,
          .running = stats.running,
          .waiting = stats.waiting};
}

}  // namespace winnow
