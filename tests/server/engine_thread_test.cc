#include "server/engine_thread.h"

#include <gmock/gmock.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "checkpoint/checkpoint_testing.h"
#include "engine/counting_backend.h"
#include "model/lora.h"
#include "server/http/api_error.h"

namespace winnow::server {
namespace {

using namespace std::chrono_literals;
using engine::testing::CountingBackend;
using engine::testing::Fault;

// Stores the results that it receives.
class Listener : public StepSink {
 public:
  void deliver(StepResult result) override {
    const std::lock_guard lock(mutex_);
    results_.push_back(std::move(result));
    heard_.notify_all();
  }
  // Waits until the request has ended; returns the results.
  std::vector<StepResult> results() {
    std::unique_lock lock(mutex_);
    heard_.wait_for(lock, 20s, [this] {
      return !results_.empty() && (!results_.back().ended.empty() || is_failure(results_.back()));
    });
    return results_;
  }
  static bool is_failure(const StepResult& result) { return !result.failure.empty(); }

 private:
  std::mutex mutex_;
  std::condition_variable heard_;
  std::vector<StepResult> results_;
};

void run_here(const std::function<void()>& work) {
  work();
}

engine::EngineConfig small_config() {
  engine::EngineConfig config;
  config.cache.rule = kvcache::RuleKind::dense;
  return config;
}

engine::Request request_of(int prompt, int max_tokens) {
  engine::Request request;
  request.prompt.resize(static_cast<std::size_t>(prompt), 1);
  request.max_tokens = max_tokens;
  return request;
}

void submit(EngineThread& thread, engine::Request request, std::shared_ptr<Listener> listener) {
  thread.submit({{std::move(request), std::move(listener)}});
}

/// The status for this many simultaneous requests; 200 if they are accepted.
int status_after(EngineThread& thread, int requests, const std::shared_ptr<Listener>& listener) {
  std::vector<EngineThread::Submission> submissions;
  for (int i = 0; i < requests; ++i) {
    submissions.push_back({request_of(3, 5), listener});
  }
  try {
    EXPECT_EQ(thread.submit(std::move(submissions)).size(), static_cast<std::size_t>(requests));
    return 200;
  } catch (const ApiError& error) {
    return error.status();
  }
}

TEST(EngineThread, TellsEverybodyTheirTokensInOrder) {
  const CountingBackend backend(Fault::none);
  EngineThread thread(backend, small_config(), {.most_samples = 8}, run_here);
  std::vector<std::shared_ptr<Listener>> listeners;
  for (int prompt = 1; prompt <= 5; ++prompt) {
    listeners.push_back(std::make_shared<Listener>());
    submit(thread, request_of(prompt, 10), listeners.back());
  }
  for (int prompt = 1; prompt <= 5; ++prompt) {
    std::vector<int> tokens;
    for (const StepResult& result : listeners[static_cast<std::size_t>(prompt - 1)]->results()) {
      for (const engine::TokenEvent& event : result.events) {
        tokens.push_back(event.token);
      }
    }
    std::vector<int> expected(10);
    std::iota(expected.begin(), expected.end(), prompt);
    EXPECT_EQ(tokens, expected);
  }
}

TEST(EngineThread, HandsOutAStepAsOnePieceOfWork) {
  const CountingBackend backend(Fault::none);
  std::mutex mutex;
  int pieces = 0;
  EngineThread thread(backend, small_config(), {.most_samples = 8},
                      [&](const std::function<void()>& work) {
                        const std::lock_guard lock(mutex);
                        ++pieces;
                        work();
                      });
  std::vector<std::shared_ptr<Listener>> listeners;
  for (int i = 0; i < 5; ++i) {
    listeners.push_back(std::make_shared<Listener>());
    submit(thread, request_of(3, 50), listeners.back());
  }
  for (const auto& listener : listeners) {
    EXPECT_EQ(listener->results().size(), 50U);
  }
  const std::lock_guard lock(mutex);
  const auto reported = [&] { return thread.report().engine.steps; };
  for (int i = 0; i < 5000 && reported() < pieces; ++i) {  // comes after the last results
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(pieces, reported());
}

TEST(EngineThread, HoldsBackAllButFirstTokensAndEnds) {
  const CountingBackend backend(Fault::none);
  EngineThread thread(backend, small_config(), {.most_samples = 8, .hold_seconds = 3600.0},
                      run_here);
  const auto listener = std::make_shared<Listener>();
  submit(thread, request_of(3, 50), listener);
  const std::vector<StepResult> results = listener->results();
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].events.size(), 1U);
  ASSERT_EQ(results[1].events.size(), 49U);
  for (std::size_t i = 0; i < 49; ++i) {
    EXPECT_EQ(results[1].events[i].token, 4 + static_cast<int>(i));
  }
}

// A request that begins or ends does not release another's held tokens.
TEST(EngineThread, HoldsBackTheTokensOfEachRequestByItself) {
  const CountingBackend backend(Fault::none);
  EngineThread thread(backend, small_config(), {.most_samples = 16, .hold_seconds = 3600.0},
                      run_here);
  std::vector<EngineThread::Submission> together;
  std::vector<std::shared_ptr<Listener>> listeners;
  for (int i = 0; i < 10; ++i) {
    listeners.push_back(std::make_shared<Listener>());
    together.push_back({request_of(3, 20 + i), listeners.back()});
  }
  thread.submit(std::move(together));
  for (const auto& listener : listeners) {
    const std::vector<StepResult> results = listener->results();
    ASSERT_EQ(results.size(), 2U);
    EXPECT_EQ(results[0].events.size(), 1U);
  }
}

TEST(EngineThread, HoldsBackNoFirstTokenOfASample) {
  const CountingBackend backend(Fault::none);
  EngineThread thread(backend, small_config(), {.most_samples = 8, .hold_seconds = 3600.0},
                      run_here);
  const auto listener = std::make_shared<Listener>();
  engine::Request request = request_of(3, 20);
  request.samples = 3;
  submit(thread, std::move(request), listener);
  std::vector<int> begun(3);
  for (const StepResult& result : listener->results()) {
    for (const engine::TokenEvent& event : result.events) {
      const bool first = begun[static_cast<std::size_t>(event.sample)]++ == 0;
      EXPECT_TRUE(!first || result.events.size() <= 3);
    }
  }
  EXPECT_THAT(begun, ::testing::Each(20));
}

TEST(EngineThread, HoldsTokensBackForNoLongerThanItShould) {
  const CountingBackend backend(Fault::none, 5ms);
  EngineThread thread(backend, small_config(), {.most_samples = 8, .hold_seconds = 0.018},
                      run_here);
  const auto listener = std::make_shared<Listener>();
  submit(thread, request_of(3, 41), listener);
  const std::vector<StepResult> results = listener->results();
  for (const StepResult& result : results) {
    EXPECT_LE(result.events.size(), 4U);
  }
  EXPECT_GE(results.size(), 11U);
}

TEST(EngineThread, TellsWhatItHeldBackBeforeItTellsOfAFailure) {
  const CountingBackend backend(Fault::late_steps);
  EngineThread thread(backend, small_config(), {.most_samples = 8, .hold_seconds = 3600.0},
                      run_here);
  const auto listener = std::make_shared<Listener>();
  submit(thread, request_of(3, 50), listener);
  const std::vector<StepResult> results = listener->results();
  ASSERT_EQ(results.size(), 3U);
  EXPECT_EQ(results[0].events.size() + results[1].events.size(), 8U);
  EXPECT_EQ(results[2].failure, "a kernel has failed late");
}

TEST(EngineThread, TakesAllThatComeTogetherOrNone) {
  const CountingBackend backend(Fault::none);
  std::promise<void> gate;
  EngineThread thread(backend, small_config(), {.most_samples = 3},
                      [told = gate.get_future().share()](const auto&) { told.wait(); });
  const auto listener = std::make_shared<Listener>();
  submit(thread, request_of(1, 999), listener);
  EXPECT_EQ(status_after(thread, 3, listener), 429);
  EXPECT_EQ(status_after(thread, 4, listener), 400);
  EXPECT_EQ(status_after(thread, 2, listener), 200);
  gate.set_value();
}

// Refused before it is prepared; what continues others takes a place all the same.
TEST(EngineThread, TellsBeforehandWhetherThereArePlaces) {
  const CountingBackend backend(Fault::none);
  std::promise<void> gate;
  EngineThread thread(backend, small_config(), {.most_samples = 2},
                      [told = gate.get_future().share()](const auto&) { told.wait(); });
  const auto listener = std::make_shared<Listener>();
  EXPECT_NO_THROW(thread.require_places(2, 2));
  submit(thread, request_of(1, 999), listener);
  submit(thread, request_of(1, 999), listener);
  const auto status = [&](int samples) {
    try {
      thread.require_places(samples, 1);
    } catch (const ApiError& error) {
      return error.status();
    }
    return 200;
  };
  EXPECT_EQ(status(1), 429);
  EXPECT_EQ(status(3), 400);
  std::vector<EngineThread::Submission> submissions;
  submissions.push_back({request_of(1, 999), listener});
  EXPECT_EQ(thread.submit(std::move(submissions), /*is_continued=*/true).size(), 1U);
  EXPECT_EQ(thread.open_requests(), 3);
  EXPECT_EQ(status(1), 429);
  gate.set_value();
}

TEST(EngineThread, EverySampleTakesAPlace) {
  const CountingBackend backend(Fault::none);
  std::promise<void> gate;
  EngineThread thread(backend, small_config(), {.most_samples = 5},
                      [told = gate.get_future().share()](const auto&) { told.wait(); });
  const auto listener = std::make_shared<Listener>();
  std::string message;
  const auto status = [&](int samples) {
    engine::Request request = request_of(1, 999);
    request.samples = samples;
    std::vector<EngineThread::Submission> submissions;
    submissions.push_back({std::move(request), listener});
    try {
      thread.submit(std::move(submissions));
    } catch (const ApiError& error) {
      message = error.what();
      return error.status();
    }
    return 200;
  };
  EXPECT_EQ(status(6), 400);
  EXPECT_EQ(status(3), 200);
  EXPECT_EQ(status(3), 429);
  EXPECT_THAT(message,
              ::testing::HasSubstr(
                  "needs 3 of the server's 5 places (--max-requests), 2 of which are free"));
  EXPECT_EQ(status(2), 200);
  EXPECT_EQ(thread.open_requests(), 2);
  gate.set_value();
}

TEST(EngineThread, GoesOnAfterAStepThatFailed) {
  const CountingBackend backend(Fault::steps);
  EngineThread thread(backend, small_config(), {.most_samples = 1}, run_here);
  for (int i = 0; i < 3; ++i) {
    const auto listener = std::make_shared<Listener>();
    submit(thread, request_of(3, 5), listener);
    const auto results = listener->results();
    ASSERT_EQ(results.size(), 1U);
    EXPECT_EQ(results[0].failure, "a kernel has failed");
  }
  EXPECT_EQ(thread.failure(), "");
}

TEST(EngineThread, RefusesRequestsOnceTheDeviceHasFailed) {
  const CountingBackend backend(Fault::device);
  EngineThread thread(backend, small_config(), {.most_samples = 8}, run_here);
  const auto listener = std::make_shared<Listener>();
  submit(thread, request_of(3, 5), listener);
  ASSERT_EQ(listener->results().size(), 1U);
  EXPECT_EQ(listener->results()[0].failure, "a kernel has failed");
  for (int i = 0; i < 1000 && thread.failure().empty(); ++i) {
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(thread.failure(), "the device does not answer");
  EXPECT_EQ(thread.open_requests(), 0);
  EXPECT_EQ(status_after(thread, 1, listener), 503);
}

TEST(EngineThread, EverybodyHearsOfADeviceThatFailsBetweenSteps) {
  const CountingBackend backend(Fault::reads, 1ms);
  EngineThread thread(backend, small_config(), {.most_samples = 8}, run_here);
  std::vector<std::shared_ptr<Listener>> listeners;
  for (int i = 0; i < 3; ++i) {
    listeners.push_back(std::make_shared<Listener>());
    submit(thread, request_of(3, 900), listeners.back());
  }
  for (const auto& listener : listeners) {
    EXPECT_EQ(listener->results().back().failure, "the device does not answer");
  }
  for (int i = 0; i < 1000 && thread.failure().empty(); ++i) {
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(thread.failure(), "the device does not answer");
  EXPECT_EQ(thread.open_requests(), 0);
}

class BrokenConstraint : public engine::TokenConstraint {
 public:
  [[nodiscard]] std::unique_ptr<TokenConstraint> fork() const override { fail("there is none"); }
  void allow(std::span<std::uint64_t> /*allowed*/) const override {}
  void accept(std::int32_t /*token*/) override {}
};

TEST(EngineThread, ARequestThatCannotBeginFailsAlone) {
  const CountingBackend backend(Fault::none);
  EngineThread thread(backend, small_config(), {.most_samples = 8}, run_here);
  const auto broken = std::make_shared<Listener>();
  const auto whole = std::make_shared<Listener>();
  engine::Request request = request_of(3, 5);
  request.constraint = std::make_shared<const BrokenConstraint>();
  thread.submit({{std::move(request), broken}, {request_of(3, 5), whole}});
  EXPECT_EQ(broken->results().back().failure, "there is none");
  EXPECT_EQ(whole->results().size(), 5U);
  EXPECT_EQ(thread.failure(), "");
}

TEST(EngineThread, SaysBeforeTheFirstRequestWhichAdapterCannotRun) {
  const TempDir dir;
  dir.write("adapter_config.json", R"({"peft_type": "LORA", "lora_alpha": 6})");
  write_safetensors(dir.path() / "adapter_model.safetensors", TensorMap{});
  for (const Fault fault : {Fault::none, Fault::adapters}) {
    const CountingBackend backend(fault);
    const auto adapter = model::Lora::load(dir.path(), backend.spec());
    EngineThread thread(backend, small_config(), {}, run_here);
    EXPECT_EQ(error_of([&] { thread.prepare(*adapter); }),
              fault == Fault::none ? "no error" : "an adapter of too high a rank");
  }
}

}  // namespace
}  // namespace winnow::server
