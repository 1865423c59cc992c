// The engine on its own thread, for many concurrent requests.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/stopwatch.h"
#include "engine/engine.h"
#include "engine/prefix_store.h"
#include "server/prefill/prefill_client.h"

namespace winnow::server {

/// Results of one or a few steps for one request.
struct StepResult {
  std::vector<engine::TokenEvent> events;
  std::vector<std::pair<int, engine::CacheUsage>> ended;  // samples that have ended
  std::vector<engine::CacheTrace> traces;
  std::string failure;     // not empty: the engine has failed; this is the last result
  bool shut_down = false;  // the server stops before the request ends; this is the last result
};

/// The state of the engine and its thread.
struct EngineReport {
  engine::EngineStats engine;
  std::optional<engine::PrefixStoreStats> store;  // of the prefixes on disk, if enabled
  std::optional<PrefillClientStats> prefill;      // of states from another server, if enabled
  double deliver_seconds = 0.0;                   // accepting requests and delivering results
  double idle_seconds = 0.0;                      // without requests
  int open_requests = 0;                          // accepted and not ended
};

/// Receives a request's results. Must not throw.
class StepSink {
 public:
  virtual ~StepSink() = default;
  virtual void deliver(StepResult result) = 0;
};

struct EngineThreadConfig {
  int most_samples = 256;  // of all accepted requests together
  double hold_seconds =
      0.0;  // maximum time for which tokens are held back, to be sent with later ones
};

/// Runs work soon, on a thread other than the caller's, in order.
using Executor = std::function<void(std::function<void()>)>;

class EngineThread {
 public:
  using Ticket = std::uint64_t;

  /// `backend`, `store` and `prefill` (may be null) must outlive this. `executor` delivers results
  /// to the sinks, a step's results as one piece of work; the next step does not wait for it.
  /// First tokens, ends and traces are never held back, and held results of their request go with
  /// them.
  EngineThread(const engine::Backend& backend, const engine::EngineConfig& engine_config,
               const EngineThreadConfig& config, Executor executor,
               engine::PrefixStore* store = nullptr, PrefillClient* prefill = nullptr);
  /// Drops all remaining requests, and writes prefixes to the store, those used last first.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  /// Like Engine::prepare(). Call it before the first request, while the engine's thread is idle.
  void prepare(const model::Lora& adapter);

  /// A request and the receiver of its results.
  struct Submission {
    engine::Request request;
    std::shared_ptr<StepSink> sink;
  };
  /// Accepts all or none; returns a ticket for each, in order. Each sample takes a place until its
  /// request ends. Throws Error like engine::validate(), and the errors of require_places() unless
  /// they take the places of earlier ones, which have just ended (`is_continued`).
  std::vector<Ticket> submit(std::vector<Submission> submissions, bool is_continued = false);
  /// Throws ApiError when `samples` of so many prompts are more than all places (400) or than the
  /// free ones (429), and when the engine has failed (503). Before the work of preparing a request.
  void require_places(int samples, std::size_t prompts) const;
  /// Cancels the request's samples; their ends are still delivered. Unknown tickets are ignored.
  void cancel(Ticket ticket);
  /// Ends one sample that has produced a token, as a stop token would.
  void stop(Ticket ticket, int sample);
  /// Ends all accepted requests that still run: their last result says shut_down.
  void shut_down();
  /// The destructor writes no more prefixes after this time.
  void store_until(std::chrono::steady_clock::time_point end);

  /// At most a moment old.
  [[nodiscard]] EngineReport report() const;
  /// Accepted requests that have not ended.
  [[nodiscard]] int open_requests() const;
  /// Why the engine cannot run any more; empty if it works.
  [[nodiscard]] std::string failure() const;

 private:
  struct Entry {
    std::shared_ptr<StepSink> sink;
    int samples = 0;
    int open_samples = 0;
    StepResult result = {};  // to be delivered
    bool has_result = false;
    bool urgent = false;               // must not be held back
    std::vector<bool> has_begun = {};  // by sample
  };
  struct Ending {
    Ticket ticket;
    int sample;  // -1: the request is cancelled
  };

  // Results and their receivers.
  using Deliveries = std::vector<std::pair<std::shared_ptr<StepSink>, StepResult>>;

  void check_most(int samples, std::size_t prompts) const;
  void check_failure() const;
  void check_free(int samples) const;
  void work();
  bool take_commands();
  void end_samples(const std::vector<Ending>& endings);
  void begin(Ticket ticket, Submission submission);
  [[nodiscard]] bool has_work() const;
  bool store_prefix();
  [[nodiscard]] bool may_store() const;
  void publish();
  void step();
  void note(engine::TokenEvent event);
  void note(engine::CacheTrace trace);
  Entry* entry_of(engine::RequestId id);
  Deliveries take_results(bool all);
  void deliver(Deliveries deliveries);
  void end_all(const StepResult& result);
  void break_down(const std::string& message);
  void close(engine::RequestId id);
  void release(int samples);

  const engine::Backend& backend_;
  EngineThreadConfig config_;
  Executor executor_;
  engine::PrefixStore* store_;
  PrefillClient* prefill_;

  // Used only on the engine's thread.
  engine::Engine engine_;
  std::map<engine::RequestId, Entry> entries_;
  std::vector<engine::RequestId> told_;  // requests that have a result
  Stopwatch since_delivery_;
  std::map<Ticket, engine::RequestId> ids_;
  Stopwatch clock_;
  Stopwatch since_report_;
  double deliver_seconds_ = 0.0;
  double idle_seconds_ = 0.0;

  mutable std::mutex mutex_;  // of the members below
  std::condition_variable wake_;
  std::vector<std::pair<Ticket, Submission>> submissions_;
  std::vector<Ending> endings_;
  bool shutting_down_ = false;
  EngineReport report_;
  Ticket next_ticket_ = 1;
  int open_ = 0;          // requests
  int open_samples_ = 0;  // of these requests
  bool closing_ = false;
  std::string failure_;
  std::chrono::steady_clock::time_point store_until_ = std::chrono::steady_clock::time_point::max();

  std::thread thread_;
};

}  // namespace winnow::server
