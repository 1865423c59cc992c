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
#include "server/api_error.h"

namespace winnow::server {
namespace {

using namespace std::chrono_literals;

enum class Fault : std::uint8_t {
  none,
  steps,   // steps fail
  device,  // and so does all that follows
};

// Sequences that only count, on a device that may fail.
class CountingBackend : public engine::Backend {
 public:
  explicit CountingBackend(Fault fault) : fault_(fault) {
    config_.vocab = 100;
    config_.max_positions = 1000;
    config_.layers = 1;
    config_.kv_heads = 1;
  }
  [[nodiscard]] const ModelConfig& config() const override { return config_; }
  [[nodiscard]] std::size_t weight_bytes_per_step() const override { return 0; }
  [[nodiscard]] double read_bandwidth() const override { return 1.0; }
  [[nodiscard]] std::size_t memory_in_use() const override { return 0; }
  [[nodiscard]] std::unique_ptr<engine::Runner> make_runner(const engine::EngineConfig& /*config*/,
                                                            int /*tokens*/) const override {
    return std::make_unique<Runner>(fault_);
  }

 private:
  class Sequence : public engine::SequenceState {
   public:
    explicit Sequence(bool fails) : fails_(fails) {}
    [[nodiscard]] int length() const override { return length_; }
    [[nodiscard]] std::unique_ptr<SequenceState> fork() const override { return nullptr; }
    [[nodiscard]] engine::CacheUsage usage() const override {
      require(!fails_, "the device does not answer");
      engine::CacheUsage usage;
      usage.tokens = length_;
      return usage;
    }
    [[nodiscard]] kvcache::SavedSequence save() const override { return {}; }
    void grow(int tokens) { length_ += tokens; }

   private:
    bool fails_;
    int length_ = 0;
  };

  // The next token of a sequence is its length.
  class Runner : public engine::Runner {
   public:
    explicit Runner(Fault fault) : fault_(fault) {}
    std::unique_ptr<engine::SequenceState> open(const kvcache::SequenceLimits&) override {
      return std::make_unique<Sequence>(fault_ == Fault::device);
    }
    std::unique_ptr<engine::SequenceState> restore(const kvcache::SequenceLimits&,
                                                   const kvcache::SavedSequence&) override {
      return nullptr;
    }
    [[nodiscard]] kvcache::PageNeed need(const engine::SequenceState&, int) const override {
      return {};
    }
    [[nodiscard]] bool has_room(const kvcache::PageNeed&) const override { return true; }
    void forward(std::span<const engine::SequenceShare> shares, ops::Matrix<float>,
                 std::span<std::int32_t> next) override {
      require(fault_ == Fault::none, "a kernel has failed");
      std::size_t row = 0;
      for (const engine::SequenceShare& share : shares) {
        auto& sequence = static_cast<Sequence&>(*share.sequence);
        sequence.grow(static_cast<int>(share.tokens.size()));
        row += share.logit_rows;
        if (share.logit_rows > 0) {
          next[row - 1] = sequence.length();
        }
      }
    }
    [[nodiscard]] std::size_t page_bytes() const override { return 0; }
    [[nodiscard]] std::size_t capacity_bytes() const override { return 1U << 20; }
    [[nodiscard]] bool forks_share_pages() const override { return false; }

   private:
    Fault fault_;
  };

  ModelConfig config_;
  Fault fault_;
};

// Keeps what it is told.
class Listener : public StepSink {
 public:
  void deliver(StepResult result) override {
    const std::lock_guard lock(mutex_);
    results_.push_back(std::move(result));
    heard_.notify_all();
  }
  // Waits until the request is over; what has come.
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

/// The status that so many requests at once are answered with; 200 if they are taken.
int status_of(EngineThread& thread, int requests, const std::shared_ptr<Listener>& listener) {
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
  EngineThread thread(backend, small_config(), 8, run_here);
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
  EngineThread thread(backend, small_config(), 8, [&](const std::function<void()>& work) {
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
  for (int i = 0; i < 5000 && reported() < pieces; ++i) {  // it comes after the last results
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(pieces, reported());
}

TEST(EngineThread, TakesAllThatComeTogetherOrNone) {
  const CountingBackend backend(Fault::none);
  std::promise<void> gate;
  EngineThread thread(backend, small_config(), 3,
                      [told = gate.get_future().share()](const auto&) { told.wait(); });
  const auto listener = std::make_shared<Listener>();
  submit(thread, request_of(1, 999), listener);
  EXPECT_EQ(status_of(thread, 3, listener), 429);
  EXPECT_EQ(status_of(thread, 4, listener), 400);
  EXPECT_EQ(status_of(thread, 2, listener), 200);
  gate.set_value();
}

TEST(EngineThread, GoesOnAfterAStepThatFailed) {
  const CountingBackend backend(Fault::steps);
  EngineThread thread(backend, small_config(), 1, run_here);
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
  EngineThread thread(backend, small_config(), 8, run_here);
  const auto listener = std::make_shared<Listener>();
  submit(thread, request_of(3, 5), listener);
  ASSERT_EQ(listener->results().size(), 1U);
  EXPECT_EQ(listener->results()[0].failure, "a kernel has failed");
  for (int i = 0; i < 1000 && thread.failure().empty(); ++i) {
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(thread.failure(), "the device does not answer");
  EXPECT_EQ(thread.open_requests(), 0);
  EXPECT_EQ(status_of(thread, 1, listener), 503);
}

}  // namespace
}  // namespace winnow::server
