#include "api/llm_batch.h"

#include <algorithm>

#include "base/error.h"

namespace winnow::engine {
namespace {

CacheStats to_stats(const CacheUsage& usage, const model::ModelSpec& spec) {
  CacheStats stats{.bytes = usage.bytes,
                   .state_bytes = usage.state_bytes,
                   .dense_bytes = usage.dense_bytes,
                   .compression_ratio = usage.compression_ratio(),
                   .live_entries = usage.live_entries,
                   .per_layer_head = {}};
  if (usage.per_head.empty()) {
    return stats;  // the answer has not begun
  }
  auto head = usage.per_head.begin();
  for (const model::LayerSpec& layer : spec.layers) {
    if (layer.stores()) {
      const auto next = head + layer.attention()->kv_heads;
      stats.per_layer_head.emplace_back(head, next);
      head = next;
    }
  }
  return stats;
}

double rate(std::int64_t tokens, double seconds) {
  return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0;
}

}  // namespace

Answer::Answer(const Tokenizer* tokenizer, const GenerateOptions& options, Request request,
               std::span<std::int32_t> live_entries)
    : request_(std::move(request)),
      prompt_tokens_(static_cast<int>(request_->prompt.size())),
      begun_(request_->beginning ? request_->beginning->length : 0),
      live_entries_(live_entries),
      on_text_([this](int /*sample*/, std::string_view text) { text_ += text; }),
      collector_(tokenizer, options, on_text_),
      usage_(static_cast<std::size_t>(options.samples)),
      open_(options.samples) {}

void Answer::accept(const TokenEvent& event) {
  if (event.of_prompt) {
    prompt_logprobs_.push_back(scored_token(event));
    return;
  }
  collector_.accept(event);
  if (event.token >= 0 || !text_.empty()) {
    pieces_.push_back({event.sample, event.token, std::exchange(text_, {})});
  }
}

void Answer::end(int sample, CacheUsage usage) {
  usage_[static_cast<std::size_t>(sample)] = std::move(usage);
  --open_;
}

Batch::Batch(const Backend& backend, const EngineConfig& config)
    : model_(backend.spec()), engine_(backend, config) {}

void Batch::submit(const std::shared_ptr<Answer>& answer) {
  validate(*answer->request_, model_);
  const std::lock_guard lock(mutex_);
  answer->before_ = throughput_;
  queued_.push_back(answer);
  if (!stepping_) {
    settle();
  }
}

bool Batch::advance(Answer& answer) {
  std::unique_lock lock(mutex_);
  if (answer.pieces_.empty() && !answer.over()) {
    if (stepping_) {
      stepped_.wait(lock, [this, now = steps_] { return steps_ != now; });
    } else {
      step(lock);
    }
  }
  if (answer.failure_) {
    std::rethrow_exception(answer.failure_);
  }
  return !answer.pieces_.empty() || !answer.over();
}

void Batch::cancel(const std::shared_ptr<Answer>& answer) {
  const std::lock_guard lock(mutex_);
  cancelled_.push_back(answer);
  if (!stepping_) {
    settle();
  }
}

void Batch::withdraw(const std::shared_ptr<Answer>& answer) {
  std::unique_lock lock(mutex_);
  cancelled_.push_back(answer);
  if (stepping_) {
    stepped_.wait(lock, [this, now = steps_] { return steps_ != now; });
  } else {
    settle();
  }
}

// The lock is free while the engine works: other callers may queue, cancel and take results.
void Batch::step(std::unique_lock<std::mutex>& lock) {
  stepping_ = true;
  lock.unlock();
  std::vector<TokenEvent> events;
  std::exception_ptr failure;
  try {
    events = engine_.step();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  stepping_ = false;
  ++steps_;
  stepped_
      .notify_all();  // they continue once the lock is free, even if an exception is thrown before
  throughput_ = engine_.throughput();
  copy_traces();
  std::ranges::for_each(events, [this](const TokenEvent& event) { dispatch(event); });
  while (failure && !open_.empty()) {
    fail(*std::shared_ptr(open_.begin()->second), failure);
  }
  settle();
}

// Carries out calls that came while a step was running.
void Batch::settle() {
  for (const std::shared_ptr<Answer>& answer : std::exchange(queued_, {})) {
    begin(answer);
  }
  for (const std::shared_ptr<Answer>& answer : std::exchange(cancelled_, {})) {
    if (!answer->over()) {
      close(*answer);
    }
  }
  for (std::packaged_task<void()>& asked : std::exchange(asked_, {})) {
    asked();
  }
}

void Batch::begin(const std::shared_ptr<Answer>& answer) {
  try {
    answer->id_ = engine_.submit(std::move(*answer->request_));
    open_.emplace(answer->id_, answer);
  } catch (...) {
    fail(*answer, std::current_exception());
  }
  answer->request_.reset();
}

void Batch::dispatch(const TokenEvent& event) {
  const auto found = open_.find(event.request);
  if (found == open_.end()) {
    return;  // the last event of a cancelled request
  }
  const std::shared_ptr<Answer> answer = found->second;
  if (answer->usage_[static_cast<std::size_t>(event.sample)]) {
    return;  // the last event of a sample that a stop string ended
  }
  try {
    take_in(*answer, event);
  } catch (...) {
    fail(*answer, std::current_exception());
  }
}

void Batch::take_in(Answer& answer, const TokenEvent& event) {
  answer.accept(event);
  if (event.finish == FinishReason::none && !answer.collector_.ended(event.sample)) {
    return;
  }
  if (event.finish == FinishReason::none) {
    engine_.stop(event.request, event.sample);
  }
  answer.end(event.sample, engine_.take_usage(event.request, event.sample));
  if (answer.over()) {
    conclude(answer);
  }
}

void Batch::copy_traces() {
  for (const CacheTrace& trace : engine_.take_traces()) {
    const auto found = open_.find(trace.request);
    if (found == open_.end() || found->second->live_entries_.empty()) {
      continue;
    }
    const std::span<std::int32_t> rows = found->second->live_entries_;
    const std::size_t heads = rows.size() / static_cast<std::size_t>(found->second->prompt_tokens_);
    const std::size_t begin = heads * static_cast<std::size_t>(trace.position);
    const std::size_t count = std::min(trace.visible.size(), rows.size() - begin);
    std::copy_n(trace.visible.begin(), count, rows.subspan(begin).begin());
  }
}

// Ends an answer's open samples without waiting for the engine to report their ends.
void Batch::close(Answer& answer) {
  try {
    engine_.cancel(answer.id_);
    for (int sample = 0; sample < static_cast<int>(answer.usage_.size()); ++sample) {
      if (!answer.usage_[static_cast<std::size_t>(sample)]) {
        answer.accept({.request = answer.id_,
                       .sample = sample,
                       .alternatives = {},
                       .finish = FinishReason::cancelled});
        answer.end(sample, engine_.take_usage(answer.id_, sample));
      }
    }
    conclude(answer);
  } catch (...) {
    fail(answer, std::current_exception());
  }
}

void Batch::conclude(Answer& answer) {
  answer.after_ = throughput_;
  open_.erase(answer.id_);
}

// Does not use the device, which may be what has failed.
void Batch::fail(Answer& answer, const std::exception_ptr& failure) {
  answer.failure_ = failure;
  answer.open_ = 0;
  engine_.give_up(answer.id_);
  open_.erase(answer.id_);
}

std::vector<Piece> Batch::take(Answer& answer) {
  const std::lock_guard lock(mutex_);
  return std::exchange(answer.pieces_, {});
}

Progress Batch::progress(const Answer& answer) const {
  const std::lock_guard lock(mutex_);
  const auto prefilled = answer.begun_ + throughput_.prefill_tokens - answer.before_.prefill_tokens;
  const auto most = static_cast<std::int64_t>(answer.prompt_tokens_);
  return {.prompt_tokens = answer.prompt_tokens_,
          .prompt_done = static_cast<int>(std::min(most, prefilled)),
          .generated = answer.collector_.generated()};
}

Generation Batch::finish(Answer& answer) {
  const std::lock_guard lock(mutex_);
  require(answer.over(), "the request is not over");
  if (answer.failure_) {
    std::rethrow_exception(answer.failure_);
  }
  Generation result;
  result.samples = answer.collector_.take();
  for (std::size_t i = 0; i < result.samples.size(); ++i) {
    const CacheUsage& usage = *answer.usage_[i];
    result.samples[i].kv = to_stats(usage, model_);
    result.drafted_tokens += usage.drafted_tokens;
    result.accepted_tokens += usage.accepted_tokens;
    result.reused_tokens = std::max(result.reused_tokens, usage.reused_tokens);
  }
  result.prompt_tokens = answer.prompt_tokens_;
  result.prompt_logprobs = std::move(answer.prompt_logprobs_);
  const Throughput& before = answer.before_;
  const Throughput& after = answer.after_;
  result.prefill_tokens_per_s = rate(after.prefill_tokens - before.prefill_tokens,
                                     after.prefill_seconds - before.prefill_seconds);
  result.decode_tokens_per_s = rate(after.decode_tokens - before.decode_tokens,
                                    after.decode_seconds - before.decode_seconds);
  return result;
}

// The result of `ask`, which queries the engine: at once, or after the running step, on the thread
// that runs it. Querying a device's pages takes time, so it is not done at every step.
template <class Result>
Result Batch::between_steps(std::function<Result()> ask) {
  std::unique_lock lock(mutex_);
  if (!stepping_) {
    return ask();
  }
  const auto task = std::make_shared<std::packaged_task<Result()>>(std::move(ask));
  std::future<Result> coming = task->get_future();
  asked_.emplace_back([task] { (*task)(); });
  lock.unlock();
  return coming.get();
}

EngineStats Batch::stats() {
  return between_steps<EngineStats>([this] { return engine_.stats(); });
}

CacheStats Batch::cache(const std::shared_ptr<Answer>& answer) {
  return between_steps<CacheStats>([this, &answer] {
    const std::optional<CacheUsage>& ended = answer->usage_.front();
    return to_stats(ended ? *ended : engine_.usage(answer->id_, 0), model_);
  });
}

}  // namespace winnow::engine
