#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "engine/sampler.h"
#include "engine/sequence.h"

namespace winnow::engine {
namespace {

void check_prompt(const Request& request, const ModelConfig& config) {
  require(!request.prompt.empty(), "the prompt is empty: at least one token is needed");
  require(request.max_tokens >= 1, "max tokens {} is not at least 1", request.max_tokens);
  require(request.samples >= 1, "{} samples: at least 1 is needed", request.samples);
  for (const std::int32_t token : request.prompt) {
    require(token >= 0 && token < config.vocab,
            "prompt token {} is outside the vocabulary of {} tokens", token, config.vocab);
  }
  const auto total = static_cast<std::int64_t>(request.prompt.size()) + request.max_tokens;
  require(total <= config.max_positions,
          "{} prompt tokens and {} new ones are more than the model's {} positions",
          request.prompt.size(), request.max_tokens, config.max_positions);
  validate(request.sampling);
}

}  // namespace

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
  }
  return "";
}

Engine::Engine(const Backend& backend, const EngineConfig& config)
    : model_(backend.config()), config_(config), runner_(backend.make_runner(config)) {
  require(config.step_tokens >= 1, "{} tokens per step: at least 1 is needed", config.step_tokens);
  require(config.max_sequences >= 1, "{} sequences: at least 1 is needed", config.max_sequences);
}

Engine::~Engine() = default;

RequestId Engine::submit(Request request) {
  check_prompt(request, model_);
  const auto spec = std::make_shared<const Request>(std::move(request));
  const RequestId id = next_id_++;
  auto sequence = std::make_unique<Sequence>();
  sequence->request = id;
  sequence->spec = spec;
  sequence->tokens = spec->prompt;
  sequence->forks_at_prompt = spec->samples > 1;
  waiting_.push_back(std::move(sequence));
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

std::vector<TokenEvent> Engine::step() {
  std::vector<TokenEvent> events;
  remove_finished(events);
  const std::vector<Share> shares = plan(events);
  if (!shares.empty()) {
    run(shares);
    sample_all(shares, events);
  }
  remove_finished(events);
  return events;
}

// Who takes part in the next step, and with how many tokens: everything that runs first, then new
// sequences as long as tokens and pages last.
std::vector<Engine::Share> Engine::plan(std::vector<TokenEvent>& events) {
  std::vector<Share> shares;
  int budget = config_.step_tokens;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    const int wanted = sequence.pending() == 1 ? 1 : std::min(sequence.pending(), budget);
    if (wanted == 0) {
      continue;
    }
    int tokens = admissible_tokens(sequence, wanted, shares);
    while (tokens == 0 && preempt_youngest(sequence, shares)) {
      tokens = admissible_tokens(sequence, wanted, shares);
    }
    if (tokens == 0 && running_.size() == 1) {
      finish(sequence, FinishReason::out_of_memory);
      break;
    }
    if (tokens > 0) {
      shares.push_back({&sequence, tokens});
      budget -= std::min(budget, tokens);
    }
  }
  admit(shares, budget);
  remove_finished(events);
  return shares;
}

// As many of `wanted` tokens as the free pages can surely hold beside what is planned already.
int Engine::admissible_tokens(const Sequence& sequence, int wanted,
                              const std::vector<Share>& shares) const {
  std::vector<Growth> growths;
  for (const Share& share : shares) {
    growths.push_back({share.sequence->cache.get(), share.tokens});
  }
  growths.push_back({sequence.cache.get(), wanted});
  for (int& tokens = growths.back().tokens; tokens > 0; tokens /= 2) {
    if (runner_->has_room(growths)) {
      return tokens;
    }
  }
  return 0;
}

// Frees the pages of the youngest running sequence that is not `except`; it waits, first in line.
bool Engine::preempt_youngest(const Sequence& except, std::vector<Share>& shares) {
  if (running_.back().get() == &except) {
    return false;
  }
  SequencePtr victim = std::move(running_.back());
  running_.pop_back();
  std::erase_if(shares, [&](const Share& share) { return share.sequence == victim.get(); });
  victim->cache.reset();
  waiting_.push_front(std::move(victim));
  ++preemptions_;
  return true;
}

void Engine::admit(std::vector<Share>& shares, int& budget) {
  while (!waiting_.empty() && budget > 0 &&
         running_.size() < static_cast<std::size_t>(config_.max_sequences)) {
    Sequence& sequence = *waiting_.front();
    const int new_tokens = sequence.spec->max_tokens;
    sequence.cache =
        runner_->open({sequence.prompt_length(), sequence.prompt_length() + new_tokens});
    const int tokens = admissible_tokens(sequence, std::min(sequence.pending(), budget), shares);
    if (tokens == 0) {
      sequence.cache.reset();
      if (running_.empty()) {
        finish(sequence, FinishReason::out_of_memory);
      }
      return;
    }
    shares.push_back({&sequence, tokens});
    budget -= tokens;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void Engine::run(std::span<const Share> shares) {
  std::vector<SequenceShare> steps;
  std::size_t rows = 0;
  std::int64_t tokens = 0;
  bool any_prefill = false;
  bool needs_logits = false;
  for (const Share& share : shares) {
    const Sequence& sequence = *share.sequence;
    const bool complete = share.tokens == sequence.pending();
    any_prefill = any_prefill || sequence.pending() > 1;
    SequenceShare step;
    step.sequence = sequence.cache.get();
    step.tokens = sequence.next(share.tokens);
    step.logit_rows = complete ? 1 : 0;
    if (complete && sequence.needs_logits()) {
      needs_logits = true;
    } else if (complete) {
      step.rule = token_rule(sequence.spec->sampling, sequence.sample, sequence.length());
      step.history = sequence.tokens;
    }
    steps.push_back(step);
    rows += complete ? 1 : 0;
    tokens += share.tokens;
  }
  const auto vocab = static_cast<std::size_t>(model_.vocab);
  next_.resize(rows);
  logits_.ensure(needs_logits ? rows * vocab : 0);
  const auto start = std::chrono::steady_clock::now();
  runner_->forward(steps, {logits_.data(), needs_logits ? rows : 0, vocab}, next_);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  (any_prefill ? throughput_.prefill_tokens : throughput_.decode_tokens) += tokens;
  (any_prefill ? throughput_.prefill_seconds : throughput_.decode_seconds) += elapsed.count();
}

void Engine::sample_all(std::span<const Share> shares, std::vector<TokenEvent>& events) {
  std::size_t row = 0;
  for (const Share& share : shares) {
    if (share.sequence->pending() > 0) {
      continue;  // its prompt goes on in the next step
    }
    const bool from_logits = share.sequence->needs_logits();
    std::vector<SequencePtr> forks = fork_samples(*share.sequence);
    accept(*share.sequence, row, from_logits, events);
    for (SequencePtr& fork : forks) {
      accept(*fork, row, from_logits, events);
      // One that found no room for its entries waits, and its prompt is read again.
      if (fork->cache) {
        running_.push_back(std::move(fork));
      } else {
        waiting_.push_back(std::move(fork));
      }
    }
    ++row;
  }
}

// The other samples of a prompt that has just been read.
std::vector<Engine::SequencePtr> Engine::fork_samples(Sequence& first) {
  std::vector<SequencePtr> forks;
  if (!first.forks_at_prompt) {
    return forks;
  }
  first.forks_at_prompt = false;
  for (int sample = 1; sample < first.spec->samples; ++sample) {
    auto fork = std::make_unique<Sequence>();
    fork->request = first.request;
    fork->sample = sample;
    fork->spec = first.spec;
    fork->tokens = first.tokens;
    fork->cache = first.cache->fork();
    forks.push_back(std::move(fork));
  }
  return forks;
}

// Gives a sequence its next token: the one that the runner has chosen in row `row` of the step, or
// one that is sampled here from the row's logits.
void Engine::accept(Sequence& sequence, std::size_t row, bool from_logits,
                    std::vector<TokenEvent>& events) {
  const Request& spec = *sequence.spec;
  const auto vocab = static_cast<std::size_t>(model_.vocab);
  Sampled chosen{.token = next_[row], .logprob = 0.0F, .alternatives = {}};
  if (from_logits) {
    chosen = sample(logits_.span().subspan(row * vocab, vocab), sequence.tokens, spec.sampling,
                    sequence.sample, sequence.length());
  }
  sequence.tokens.push_back(chosen.token);
  if (std::ranges::find(spec.stop_tokens, chosen.token) != spec.stop_tokens.end()) {
    finish(sequence, FinishReason::stop);
  } else if (sequence.length() - sequence.prompt_length() >= spec.max_tokens) {
    finish(sequence, FinishReason::length);
  }
  sequence.announced = sequence.finish != FinishReason::none;
  events.push_back({sequence.request, sequence.sample, chosen.token, chosen.logprob,
                    std::move(chosen.alternatives), sequence.finish});
}

void Engine::finish(Sequence& sequence, FinishReason reason) {
  sequence.finish = reason;
  for (int sample = sequence.sample; sample < sequence.end_sample(); ++sample) {
    usage_[{sequence.request, sample}] = {};
  }
  if (sequence.cache) {
    usage_[{sequence.request, sequence.sample}] = sequence.cache->usage();
    sequence.cache.reset();
  }
}

void Engine::remove_finished(std::vector<TokenEvent>& events) {
  const auto remove = [&](const SequencePtr& sequence) {
    if (sequence->finish == FinishReason::none) {
      return false;
    }
    for (int sample = sequence->sample; !sequence->announced && sample < sequence->end_sample();
         ++sample) {
      events.push_back({sequence->request, sample, -1, 0.0F, {}, sequence->finish});
    }
    return true;
  };
  std::erase_if(waiting_, remove);
  std::erase_if(running_, remove);
}

CacheUsage Engine::take_usage(RequestId request, int sample) {
  const auto found = usage_.find({request, sample});
  require(found != usage_.end(), "sample {} of request {} has not finished", sample, request);
  CacheUsage usage = std::move(found->second);
  usage_.erase(found);
  return usage;
}

}  // namespace winnow::engine
