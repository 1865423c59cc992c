#include "engine/engine.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "engine/cache_memory.h"
#include "engine/prefix_store.h"
#include "engine/sampler.h"
#include "engine/sequence.h"

namespace winnow::engine {

void validate(const Request& request, const model::ModelSpec& model) {
  require(!request.prompt.empty(), "the prompt is empty: at least one token is needed");
  const bool asks_of_prompt = request.prompt_logprobs >= 0 || request.on_logits ||
                              request.on_state || request.on_prompt_cache || request.trace;
  const int least = asks_of_prompt ? 0 : 1;
  require(request.max_tokens >= least, "max tokens {} is not at least {}", request.max_tokens,
          least);
  require(request.samples >= 1, "{} samples: at least 1 is needed", request.samples);
  for (const std::int32_t token : request.prompt) {
    require(token >= 0 && token < model.vocab,
            "prompt token {} is outside the vocabulary of {} tokens", token, model.vocab);
  }
  const auto room = model.max_positions - static_cast<std::int64_t>(request.prompt.size());
  if (request.max_tokens > room) {
    fail("{} prompt tokens and {} new ones are more than the model's {} positions: {}",
         request.prompt.size(), request.max_tokens, model.max_positions,
         room > 0 ? fmt::format("at most {} new ones fit", room) : "the prompt is too long");
  }
  require(request.draft_tokens.value_or(0) >= 0 && request.draft_tokens.value_or(0) <= kMostDrafted,
          "{} draft tokens: expected 0 to {}", request.draft_tokens.value_or(0), kMostDrafted);
  validate(request.sampling);
  validate(request.rules, model.vocab);
}

std::string_view finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::none:
      return "";
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::out_of_memory:
      return "out_of_memory";
    case FinishReason::not_numbers:
      return "not_numbers";
    case FinishReason::no_token:
      return "no_token";
  }
  return "";
}

namespace {

// The configuration of a runner that leaves a drafter its memory.
EngineConfig beside(const Drafter& drafter, EngineConfig config) {
  const DraftMemory memory = drafter.memory();
  config.other_bytes += memory.capacity_bytes + memory.weight_bytes;
  return config;
}

}  // namespace

Engine::Engine(const Backend& backend, const EngineConfig& config, PrefixStore* store,
               StateSource* remote)
    : model_(backend.spec()),
      shape_(backend.cache_shape()),
      config_(config),
      drafter_(make_drafter(config)),
      runner_(backend.make_runner(beside(*drafter_, config))),
      store_(store),
      remote_(remote),
      host_(config.host_bytes > 0
                ? std::make_unique<HostTier>(runner_->make_host_copies(config.host_bytes), store)
                : nullptr),
      prefixes_(config.prefix_listener) {
  require(drafter_->layers_read().empty() || backend.hands_out_stream(),
          "an EAGLE-3 head or MTP layer drafts: it reads the model's hidden states, which no model "
          "gives that is divided among ranks");
  require(config.step_tokens >= 1, "{} tokens per step: at least 1 is needed", config.step_tokens);
  require(config.max_sequences >= 1, "{} sequences: at least 1 is needed", config.max_sequences);
  config_.reuse_prefixes = config.reuse_prefixes && config.cache.traits().shares_prefixes() &&
                           runner_->forks_share_pages();
  stats_.capacity_bytes = runner_->capacity_bytes();
  // Without a size the cache of a CPU is most of its memory, which others may need.
  const bool grows = !config.cuda_device && config.cache.max_bytes == kAllThereIs;
  prefix_bytes_ =
      config.prefix_bytes.value_or(grows ? stats_.capacity_bytes / 4 : stats_.capacity_bytes);
}

Engine::~Engine() = default;

RequestId Engine::submit(Request request) {
  validate(request, model_);
  if (request.adapter) {
    prepare(*request.adapter);
  }
  const auto spec = std::make_shared<const Request>(std::move(request));
  const RequestId id = next_id_++;
  auto sequence = std::make_unique<Sequence>();
  sequence->request = id;
  sequence->spec = spec;
  sequence->tokens = spec->prompt;
  sequence->forks_at_prompt = spec->samples > 1;
  if (spec->constraint) {
    sequence->constraint = spec->constraint->fork();
  }
  if (spec->rules.mirostat.version > 0) {
    sequence->mirostat.emplace(spec->rules.mirostat);
  }
  if (spec->count_reads) {
    sequence->reads.emplace(config_.cache.traits(), shape_);
  }
  if (never_fits(sequence->length())) {
    finish(*sequence, FinishReason::out_of_memory);  // waiting would only drive others out
  } else {
    sequence->shared = known_part(*sequence);
    ask_sources(*sequence);
  }
  auto place = waiting_.end();  // after those of the same priority
  while (place != waiting_.begin() && (*std::prev(place))->spec->priority > spec->priority) {
    --place;
  }
  waiting_.insert(place, std::move(sequence));
  return id;
}

void Engine::cancel(RequestId request) {
  const auto end = [&](const SequencePtr& sequence) {
    if (sequence->request == request && sequence->finish == FinishReason::none) {
      finish(*sequence, FinishReason::cancelled);
    }
  };
  std::ranges::for_each(waiting_, end);
  std::ranges::for_each(running_, end);
}

void Engine::give_up(RequestId request) noexcept {
  const auto is_of = [request](const SequencePtr& sequence) {
    return sequence->request == request;
  };
  std::erase_if(waiting_, is_of);
  if (std::erase_if(running_, is_of) > 0) {
    crowded_ = false;
  }
  usage_.erase(usage_.lower_bound({request, 0}), usage_.lower_bound({request + 1, 0}));
}

void Engine::stop(RequestId request, int sample) {
  const auto end = [&](const SequencePtr& sequence) {
    if (sequence->request == request && sequence->sample == sample && !sequence->forks_at_prompt &&
        sequence->finish == FinishReason::none) {
      finish(*sequence, FinishReason::stop);
    }
  };
  std::ranges::for_each(waiting_, end);
  std::ranges::for_each(running_, end);
}

std::vector<TokenEvent> Engine::step() {
  std::vector<TokenEvent> events;
  step_clock_.lap();
  remove_finished(events);
  const std::vector<Share> shares = plan(events);
  if (!shares.empty()) {
    run(shares);
    sample_all(shares, events);
    ++stats_.steps;
  }
  remove_finished(events);
  stats_.sample_seconds += step_clock_.lap();
  return events;
}

void Engine::finish(Sequence& sequence, FinishReason reason) {
  sequence.finish = reason;
  for (int sample = sequence.sample; sample < sequence.end_sample(); ++sample) {
    usage_[{sequence.request, sample}] = {};
  }
  if (!sequence.cache) {
    return;
  }
  const bool whole = reason == FinishReason::stop || reason == FinishReason::length;
  if (whole) {
    catch_up(sequence);
  }
  CacheUsage& usage = usage_[{sequence.request, sequence.sample}];
  usage = sequence.cache->usage();
  usage.reused_tokens = sequence.reused;
  usage.drafted_tokens = sequence.drafted_tokens;
  usage.accepted_tokens = sequence.accepted_tokens;
  if (sequence.reads) {
    usage.reads = sequence.reads->reads();
  }
  if (whole) {
    estimate_.observe(usage);
    estimate_.observe_answer(sequence.length() - sequence.prompt_length(),
                             reason == FinishReason::stop);
  }
  // Users often continue a cancelled answer or ask for it again.
  if (whole ||
      (reason == FinishReason::cancelled && sequence.length() > sequence.prompt_length())) {
    keep_prefix(sequence, std::move(sequence.cache), PrefixCache::Purpose::continuation);
  }
  sequence.cache.reset();
}

void Engine::remove_finished(std::vector<TokenEvent>& events) {
  const auto remove = [&](const SequencePtr& sequence) {
    if (sequence->finish == FinishReason::none) {
      return false;
    }
    for (int sample = sequence->sample; !sequence->announced && sample < sequence->end_sample();
         ++sample) {
      events.push_back({.request = sequence->request,
                        .sample = sample,
                        .alternatives = {},
                        .finish = sequence->finish});
    }
    return true;
  };
  std::erase_if(waiting_, remove);
  if (std::erase_if(running_, remove) > 0) {
    crowded_ = false;
  }
}

CacheUsage Engine::usage(RequestId request, int sample) const {
  const auto found = std::ranges::find_if(running_, [&](const SequencePtr& sequence) {
    return sequence->request == request && sequence->sample == sample && sequence->cache;
  });
  return found == running_.end() ? CacheUsage{} : (*found)->cache->usage();
}

CacheUsage Engine::take_usage(RequestId request, int sample) {
  const auto found = usage_.find({request, sample});
  require(found != usage_.end(), "sample {} of request {} has not finished", sample, request);
  CacheUsage usage = std::move(found->second);
  usage_.erase(found);
  return usage;
}

void Engine::drop_prefixes() {
  drafter_->drop_prefixes();
  while (drop_prefix()) {
  }
  while (host_ && host_->drop_prefix()) {
  }
}

// Drops the least recently used prefix, which moves to the host's memory or to the store; false
// when there is none. Those whose pages running sequences hold go last, as they free hardly any.
bool Engine::drop_prefix() {
  SharedTokens held;
  for (const SequencePtr& sequence : running_) {
    held.add(sequence->shared.get());
  }
  std::optional<PrefixCache::Prefix> prefix = prefixes_.take_oldest(
      [&](const SequenceState& state) { return held.contains(state.shared.get()); });
  if (prefix && !(host_ && host_->keep(*prefix)) && prefix->is_unstored() && store_ != nullptr) {
    store_->put({std::move(prefix->tokens), prefix->state->save()});
  }
  return prefix.has_value();
}

bool Engine::store_prefix() {
  if (store_ == nullptr) {
    return false;
  }
  std::optional<PrefixCache::Unstored> prefix = prefixes_.take_unstored();
  if (prefix) {
    store_->put({std::move(prefix->tokens), prefix->state->save()});
  }
  return prefix.has_value() || (host_ && host_->store_prefix());
}

EngineStats Engine::stats() const {
  EngineStats stats = stats_;
  stats.running = running_.size();
  stats.waiting = waiting_.size();
  stats.prefixes = prefixes_.size();
  stats.page_bytes = runner_->page_bytes();
  stats.running_bytes = running_bytes(stats.page_bytes);
  stats.state_bytes = runner_->state_bytes();
  stats.draft_memory = drafter_->memory();
  if (host_) {
    stats.host = host_->stats();
  }
  return stats;
}

}  // namespace winnow::engine
