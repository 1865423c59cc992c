// Serves requests of many callers on one engine.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/llm_collector.h"
#include "engine/engine.h"

namespace winnow::engine {

/// A request and its results so far. After submission only its batch may access it.
class Answer {
 public:
  /// `tokenizer` may be null and must outlive this. `live_entries` [prompt tokens, layers *
  /// kv_heads], if not empty, receives the number of entries that each token's query saw.
  Answer(const Tokenizer* tokenizer, const GenerateOptions& options, Request request,
         std::span<std::int32_t> live_entries = {});
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

 private:
  friend class Batch;

  [[nodiscard]] bool over() const { return open_ == 0; }
  void accept(const TokenEvent& event);
  void end(int sample, CacheUsage usage);

  std::optional<Request> request_;  // until the engine takes it
  RequestId id_ = 0;
  int prompt_tokens_;
  int begun_;  // prompt tokens that Request::beginning holds
  std::span<std::int32_t> live_entries_;
  std::string text_;  // final text from the current event
  TextCallback on_text_;
  Collector collector_;
  std::vector<Piece> pieces_;
  std::vector<ScoredToken> prompt_logprobs_;
  std::vector<std::optional<CacheUsage>> usage_;  // by sample; set once it has ended
  int open_;                                      // samples that have not ended
  std::exception_ptr failure_;
  Throughput before_;
  Throughput after_;
};

/// The engine has no thread of its own. A caller that waits for an answer runs a step for all
/// callers, or waits for the running step. Any number of threads may call.
class Batch {
 public:
  /// `backend` must outlive the batch.
  Batch(const Backend& backend, const EngineConfig& config);

  /// Queues an answer's request, or throws the errors of validate().
  void submit(const std::shared_ptr<Answer>& answer);
  /// Runs or awaits a step unless there are pieces to take. Returns false once the answer is over
  /// and nothing is left to take. Throws the engine's error if a step of this answer failed.
  bool advance(Answer& answer);
  /// Ends all samples: at once, or after the running step. If the device fails meanwhile, the
  /// answer fails.
  void cancel(const std::shared_ptr<Answer>& answer);
  /// Like cancel(). On return, the engine no longer uses the request: the data that it refers to
  /// may be freed.
  void withdraw(const std::shared_ptr<Answer>& answer);

  std::vector<Piece> take(Answer& answer);
  [[nodiscard]] Progress progress(const Answer& answer) const;
  /// What the cache of its first sample holds. Waits for the running step.
  [[nodiscard]] CacheStats cache(const std::shared_ptr<Answer>& answer);
  /// The whole result of an answer that is over. May be called once. Throws the errors of
  /// advance().
  Generation finish(Answer& answer);

  /// The engine's counters. Waits for the running step.
  [[nodiscard]] EngineStats stats();

 private:
  template <class Result>
  Result between_steps(std::function<Result()> ask);
  void step(std::unique_lock<std::mutex>& lock);
  void settle();
  void begin(const std::shared_ptr<Answer>& answer);
  void dispatch(const TokenEvent& event);
  void take_in(Answer& answer, const TokenEvent& event);
  void copy_traces();
  void close(Answer& answer);
  void conclude(Answer& answer);
  void fail(Answer& answer, const std::exception_ptr& failure);

  const model::ModelSpec& model_;
  mutable std::mutex mutex_;  // guards everything below, and answers
  std::condition_variable stepped_;
  bool stepping_ = false;  // the thread that runs a step owns the engine
  std::uint64_t steps_ = 0;
  Engine engine_;
  Throughput throughput_;
  std::vector<std::packaged_task<void()>> asked_;   // queries that came during a step
  std::vector<std::shared_ptr<Answer>> queued_;     // submitted during a step
  std::vector<std::shared_ptr<Answer>> cancelled_;  // cancelled during a step
  std::map<RequestId, std::shared_ptr<Answer>> open_;
};

}  // namespace winnow::engine
