// The engine on a thread of its own, for many who ask at once.
#pragma once

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

/// What one step, or a few, brought for one request.
struct StepResult {
  std::vector<engine::TokenEvent> events;
  std::vector<std::pair<int, engine::CacheUsage>> ended;  // samples that are over
  std::vector<engine::CacheTrace> traces;
  std::string failure;     // not empty: the engine has failed, and nothing more comes
  bool shut_down = false;  // the server ends before the request, and nothing more comes
};

/// How the engine and its thread are doing.
struct EngineReport {
  engine::EngineStats engine;
  std::optional<engine::PrefixStoreStats> store;  // of the prefixes on disk, if there is a place
  std::optional<PrefillClientStats> prefill;      // of states from another server, if one is asked
  double deliver_seconds = 0.0;                   // taking requests and handing out results
  double idle_seconds = 0.0;                      // without requests
  int open_requests = 0;                          // taken and not over
};

/// Receives a request's results. Must not throw.
class StepSink {
 public:
  virtual ~StepSink() = default;
  virtual void deliver(StepResult result) = 0;
};

struct EngineThreadConfig {
  int most_samples = 256;  // of all requests that are taken at a time
  double hold_seconds =
      0.0;  // for which tokens may be held back, to be told with those that follow
};

/// Runs work soon, on another thread than the caller's, in order.
using Executor = std::function<void(std::function<void()>)>;

class EngineThread {
 public:
  using Ticket = std::uint64_t;

  /// `backend`, `store` and `prefill` (may be null) must outlive this. Results are handed to their
  /// sinks by `executor`, all of a step as one piece of work: the next step does not wait for them.
  /// First tokens, ends and traces are never held back, and what is held of their request goes with
  /// them.
  EngineThread(const engine::Backend& backend, const engine::EngineConfig& engine_config,
               const EngineThreadConfig& config, Executor executor,
               engine::PrefixStore* store = nullptr, PrefillClient* prefill = nullptr);
  /// Drops whatever is still asked for; prefixes are in the store afterwards.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  /// As Engine::prepare(). Before the first request: the engine's thread has nothing to do then.
  void prepare(const model::Lora& adapter);

  /// A request and the receiver of its results.
  struct Submission {
    engine::Request request;
    std::shared_ptr<StepSink> sink;
  };
  /// Takes all of them or none; a ticket for each, in order. Each sample takes a place until its
  /// request is over. Throws Error as engine::validate() does, and ApiError when there will never
  /// be so many places (400), when there are not now (429) and when the engine has failed (503).
  std::vector<Ticket> submit(std::vector<Submission> submissions);
  /// Ends the request's samples; their ends are still delivered. Unknown tickets are ignored.
  void cancel(Ticket ticket);
  /// Ends one sample that has told a token, as a stop token would.
  void stop(Ticket ticket, int sample);
  /// Ends all requests that were taken and are not over: their last result says shut_down.
  void shut_down();

  /// As of a moment ago.
  [[nodiscard]] EngineReport report() const;
  /// Requests that were taken and are not over.
  [[nodiscard]] int open_requests() const;
  /// Why nothing will run any more; empty while all is well.
  [[nodiscard]] std::string failure() const;

 private:
  struct Entry {
    std::shared_ptr<StepSink> sink;
    int samples = 0;
    int open_samples = 0;
    StepResult result = {};  // that is to be told
    bool has_result = false;
    bool urgent = false;               // it is not held back
    std::vector<bool> has_begun = {};  // by sample
  };
  struct Ending {
    Ticket ticket;
    int sample;  // -1: the request is cancelled
  };

  // Results and whom they are for.
  using Deliveries = std::vector<std::pair<std::shared_ptr<StepSink>, StepResult>>;

  void work();
  bool take_commands();
  void end_samples(const std::vector<Ending>& endings);
  void begin(Ticket ticket, Submission submission);
  [[nodiscard]] bool has_work() const;
  bool store_prefix();
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

  // The engine's thread alone.
  engine::Engine engine_;
  std::map<engine::RequestId, Entry> entries_;
  std::vector<engine::RequestId> told_;  // that have a result
  Stopwatch since_delivery_;
  std::map<Ticket, engine::RequestId> ids_;
  Stopwatch clock_;
  Stopwatch since_report_;
  double deliver_seconds_ = 0.0;
  double idle_seconds_ = 0.0;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  std::vector<std::pair<Ticket, Submission>> submissions_;
  std::vector<Ending> endings_;
  bool shutting_down_ = false;
  EngineReport report_;
  Ticket next_ticket_ = 1;
  int open_ = 0;          // requests
  int open_samples_ = 0;  // of them
  bool closing_ = false;
  std::string failure_;

  std::thread thread_;
};

}  // namespace winnow::server
