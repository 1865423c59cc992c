#include "server/engine_thread.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/error_text.h"
#include "server/http/api_error.h"

namespace winnow::server {
namespace {

constexpr double kReportSeconds = 0.02;  // between reports: on some devices they take a while

StepResult failed(const std::string& message) {
  StepResult result;
  result.failure = message;
  return result;
}

// Fits an int: a request has at most 128 samples, and few prompts.
int samples_of(const std::vector<EngineThread::Submission>& submissions) {
  int samples = 0;
  for (const EngineThread::Submission& submission : submissions) {
    samples += submission.request.samples;
  }
  return samples;
}

}  // namespace

EngineThread::EngineThread(const engine::Backend& backend,
                           const engine::EngineConfig& engine_config,
                           const EngineThreadConfig& config, Executor executor,
                           engine::PrefixStore* store, PrefillClient* prefill)
    : backend_(backend),
      config_(config),
      executor_(std::move(executor)),
      store_(store),
      prefill_(prefill),
      engine_(backend, engine_config, store, prefill) {
  publish();
  thread_ = std::thread([this] { work(); });
  ::pthread_setname_np(thread_.native_handle(), "engine");
}

EngineThread::~EngineThread() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void EngineThread::prepare(const model::Lora& adapter) {
  const std::lock_guard lock(mutex_);
  engine_.prepare(adapter);
}

void EngineThread::require_places(int samples, std::size_t prompts) const {
  check_most(samples, prompts);
  const std::lock_guard lock(mutex_);
  check_failure();
  check_free(samples);
}

void EngineThread::check_most(int samples, std::size_t prompts) const {
  if (samples > config_.most_samples) {
    const bool one = prompts == 1;
    throw ApiError(400,
                   fmt::format("{} answers to {} prompts are more than the {} (--max-requests) "
                               "that the server takes at a time",
                               samples, prompts, config_.most_samples),
                   one ? "n" : "prompt", one ? "too_many_answers" : "too_many_prompts");
  }
}

// Call with the mutex held.
void EngineThread::check_failure() const {
  if (!failure_.empty()) {
    throw ApiError(503, "the engine has failed; see the server's log", {}, "engine_failed");
  }
}

// Call with the mutex held.
void EngineThread::check_free(int samples) const {
  if (open_samples_ + samples > config_.most_samples) {
    throw ApiError(
        429,
        fmt::format("the request needs {} of the server's {} places (--max-requests), {} of which "
                    "are free; try again later",
                    samples, config_.most_samples,
                    std::max(0, config_.most_samples - open_samples_)),
        {}, "too_many_requests");
  }
}

std::vector<EngineThread::Ticket> EngineThread::submit(std::vector<Submission> submissions,
                                                       bool is_continued) {
  for (const Submission& submission : submissions) {
    engine::validate(submission.request, backend_.spec());
  }
  const int samples = samples_of(submissions);
  if (!is_continued) {
    check_most(samples, submissions.size());
  }
  const std::lock_guard lock(mutex_);
  check_failure();
  if (!is_continued) {
    check_free(samples);
  }
  open_ += static_cast<int>(submissions.size());
  open_samples_ += samples;
  std::vector<Ticket> tickets;
  for (Submission& submission : submissions) {
    tickets.push_back(next_ticket_++);
    submissions_.emplace_back(tickets.back(), std::move(submission));
  }
  wake_.notify_one();
  return tickets;
}

void EngineThread::cancel(Ticket ticket) {
  stop(ticket, -1);
}

void EngineThread::stop(Ticket ticket, int sample) {
  const std::lock_guard lock(mutex_);
  endings_.push_back({ticket, sample});
  wake_.notify_one();
}

void EngineThread::shut_down() {
  const std::lock_guard lock(mutex_);
  shutting_down_ = true;
  wake_.notify_one();
}

void EngineThread::store_until(std::chrono::steady_clock::time_point end) {
  const std::lock_guard lock(mutex_);
  store_until_ = end;
}

EngineReport EngineThread::report() const {
  const std::lock_guard lock(mutex_);
  EngineReport report = report_;
  report.open_requests = open_;
  if (store_ != nullptr) {
    report.store = store_->stats();
  }
  if (prefill_ != nullptr) {
    report.prefill = prefill_->stats();
  }
  return report;
}

int EngineThread::open_requests() const {
  const std::lock_guard lock(mutex_);
  return open_;
}

std::string EngineThread::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void EngineThread::work() {
  try {
    while (take_commands()) {
      try {
        step();
      } catch (const std::exception& error) {
        end_all(failed(error_text(error)));
      }
    }
  } catch (const std::exception& error) {
    break_down(error_text(error));
  }
  while (may_store() && store_prefix()) {
    store_->flush();  // one copy at a time
  }
}

bool EngineThread::may_store() const {
  const std::lock_guard lock(mutex_);
  return std::chrono::steady_clock::now() < store_until_;
}

// Call with the mutex held: whether there is work besides waiting.
bool EngineThread::has_work() const {
  return closing_ || shutting_down_ || !submissions_.empty() || !endings_.empty() ||
         !engine_.idle();
}

// Copies a prefix for the disk; false when there is none. Errors are ignored: requests report a
// failed device, and prefixes are only an optimisation.
bool EngineThread::store_prefix() {
  try {
    return engine_.store_prefix();
  } catch (const std::exception&) {
    return false;
  }
}

// Waits for commands or work; false at the end.
bool EngineThread::take_commands() {
  std::vector<std::pair<Ticket, Submission>> submissions;
  std::vector<Ending> endings;
  bool shuts_down = false;
  {
    std::unique_lock lock(mutex_);
    if (engine_.idle() || since_report_.seconds() > kReportSeconds) {
      publish();
    }
    deliver_seconds_ += clock_.lap();
    for (bool more = true; more && !has_work();) {
      lock.unlock();
      more = store_prefix();
      lock.lock();
    }
    wake_.wait(lock, [this] { return has_work(); });
    if (closing_) {
      return false;
    }
    idle_seconds_ += clock_.lap();
    submissions.swap(submissions_);
    endings.swap(endings_);
    shuts_down = std::exchange(shutting_down_, false);
  }
  for (auto& [ticket, submission] : submissions) {
    begin(ticket, std::move(submission));
  }
  end_samples(endings);
  if (shuts_down) {
    StepResult last;
    last.shut_down = true;
    end_all(last);
  }
  return true;
}

// The engine may use the device here: a failure ends the open requests, as a failed step does.
void EngineThread::end_samples(const std::vector<Ending>& endings) {
  try {
    for (const Ending& ending : endings) {
      const auto found = ids_.find(ending.ticket);
      if (found != ids_.end()) {
        ending.sample < 0 ? engine_.cancel(found->second)
                          : engine_.stop(found->second, ending.sample);
      }
    }
  } catch (const std::exception& error) {
    end_all(failed(error_text(error)));
  }
}

// If the engine rejects a request, only that request fails.
void EngineThread::begin(Ticket ticket, Submission submission) {
  const int samples = submission.request.samples;
  try {
    const engine::RequestId id = engine_.submit(std::move(submission.request));
    entries_[id] = {.sink = std::move(submission.sink),
                    .samples = samples,
                    .open_samples = samples,
                    .has_begun = std::vector<bool>(static_cast<std::size_t>(samples))};
    ids_[ticket] = id;
  } catch (const std::exception& error) {
    release(samples);
    deliver({{std::move(submission.sink), failed(error_text(error))}});
  }
}

void EngineThread::publish() {
  report_.engine = engine_.stats();
  report_.deliver_seconds = deliver_seconds_;
  report_.idle_seconds = idle_seconds_;
  since_report_.lap();
}

void EngineThread::step() {
  deliver_seconds_ += clock_.lap();
  std::vector<engine::TokenEvent> events = engine_.step();
  clock_.lap();  // the engine measures its own times
  for (engine::TokenEvent& event : events) {
    note(std::move(event));
  }
  for (engine::CacheTrace& trace : engine_.take_traces()) {
    note(std::move(trace));
  }
  deliver(take_results(since_delivery_.seconds() >= config_.hold_seconds));
}

void EngineThread::note(engine::TokenEvent event) {
  std::optional<engine::CacheUsage> usage;
  if (event.finish != engine::FinishReason::none) {
    usage = engine_.take_usage(event.request, event.sample);
  }
  if (Entry* entry = entry_of(event.request)) {
    if (const auto sample = static_cast<std::size_t>(event.sample);
        !event.of_prompt && !entry->has_begun[sample]) {
      entry->has_begun[sample] = true;
      entry->urgent = true;
    }
    entry->urgent = entry->urgent || usage.has_value();
    if (usage) {
      entry->result.ended.emplace_back(event.sample, std::move(*usage));
      --entry->open_samples;
    }
    entry->result.events.push_back(std::move(event));
  }
}

void EngineThread::note(engine::CacheTrace trace) {
  if (Entry* entry = entry_of(trace.request)) {
    entry->result.traces.push_back(std::move(trace));
    entry->urgent = true;
  }
}

// The entry that receives a result; null when the request was cancelled.
EngineThread::Entry* EngineThread::entry_of(engine::RequestId id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) {
    return nullptr;
  }
  if (!std::exchange(found->second.has_result, true)) {
    told_.push_back(id);
  }
  return &found->second;
}

// The results to deliver, all or only urgent ones. Finished requests are removed.
EngineThread::Deliveries EngineThread::take_results(bool all) {
  if (all) {
    since_delivery_.lap();
  }
  Deliveries deliveries;
  deliveries.reserve(told_.size());
  for (const engine::RequestId id : std::exchange(told_, {})) {
    Entry& entry = entries_.at(id);
    if (!all && !entry.urgent) {
      told_.push_back(id);
      continue;
    }
    entry.has_result = false;
    entry.urgent = false;
    deliveries.emplace_back(entry.sink, std::exchange(entry.result, {}));
    if (entry.open_samples == 0) {
      close(id);
    }
  }
  return deliveries;
}

void EngineThread::deliver(Deliveries deliveries) {
  if (deliveries.empty()) {
    return;
  }
  executor_([work = std::make_shared<Deliveries>(std::move(deliveries))] {
    for (auto& [sink, result] : *work) {
      sink->deliver(std::move(result));
    }
  });
}

// `result` is the last one that every request receives.
void EngineThread::end_all(const StepResult& result) {
  deliver(take_results(/*all=*/true));
  Deliveries deliveries;
  std::vector<engine::RequestId> open;
  for (const auto& [id, entry] : entries_) {
    deliveries.emplace_back(entry.sink, result);
    open.push_back(id);
  }
  std::ranges::for_each(open, [this](engine::RequestId id) { close(id); });
  deliver(std::move(deliveries));
  std::ranges::for_each(open, [this](engine::RequestId id) { engine_.give_up(id); });
}

// A device that cannot even report its state has failed for good: this thread ends.
void EngineThread::break_down(const std::string& message) {
  end_all(failed(message));
  Deliveries deliveries;
  {
    const std::lock_guard lock(mutex_);
    failure_ = message;
    for (auto& [_, submission] : submissions_) {
      deliveries.emplace_back(std::move(submission.sink), failed(message));
    }
    submissions_.clear();
    open_ = 0;
    open_samples_ = 0;
  }
  deliver(std::move(deliveries));
}

void EngineThread::close(engine::RequestId id) {
  const int samples = entries_.at(id).samples;
  entries_.erase(id);
  std::erase_if(ids_, [id](const auto& pair) { return pair.second == id; });
  release(samples);
}

// A request has ended.
void EngineThread::release(int samples) {
  const std::lock_guard lock(mutex_);
  --open_;
  open_samples_ -= samples;
}

}  // namespace winnow::server
