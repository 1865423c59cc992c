#include "apps/winnow/bench/full_load.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "apps/winnow/interrupt.h"
#include "apps/winnow/progress.h"
#include "base/error.h"
#include "base/random.h"

namespace winnow::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kNotedSteps = 16;  // steps between looks at what the cache holds

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

class FullLoad {
 public:
  FullLoad(const engine::Backend& backend, const engine::EngineConfig& config,
           const FullLoadPlan& plan)
      : vocab_(backend.spec().vocab), plan_(plan), engine_(backend, config) {}

  FullLoadResult run() {
    warm_up();
    std::int64_t total = 0;
    for (int i = 0; i < plan_.requests; ++i) {
      const int length = answer_length();
      answers_[engine_.submit(request(plan_.input, plan_.output))].length = length;
      total += length;
    }
    ProgressBar progress("load", total, "tokens");
    start_ = Clock::now();
    while (!engine_.idle()) {
      stop_if_interrupted();
      take(engine_.step());
      progress.update(tokens_);
    }
    result_.seconds = seconds_between(start_, Clock::now());
    result_.output_tokens_per_s = static_cast<double>(tokens_) / result_.seconds;
    result_.steady_tokens_per_s = steady_tokens_per_s();
    result_.stats = engine_.stats();
    result_.throughput = engine_.throughput();
    result_.compression_ratio =
        live_ > 0 ? static_cast<double>(dense_) / static_cast<double>(live_) : 1.0;
    return std::move(result_);
  }

 private:
  struct Point {
    double seconds;
    std::int64_t tokens;
  };

  struct Answer {
    int length = 0;  // at which it ends
    int tokens = 0;  // so far
    Clock::time_point first;
  };

  int answer_length() {
    const int more = plan_.output - plan_.least_output;
    return plan_.least_output + (more > 0 ? static_cast<int>(random_.uniform() * (more + 1)) : 0);
  }

  engine::Request request(int input, int output) {
    engine::Request request;
    for (int i = 0; i < input; ++i) {
      request.prompt.push_back(static_cast<std::int32_t>(random_.uniform() * vocab_));
    }
    request.max_tokens = output;
    return request;
  }

  // Touches weights, scratch memory and kernels once.
  void warm_up() {
    engine_.submit(request(plan_.input, std::min(plan_.output, 4)));
    while (!engine_.idle()) {
      stop_if_interrupted();
      for (const engine::TokenEvent& event : engine_.step()) {
        check(event);
      }
    }
  }

  static void check(const engine::TokenEvent& event) {
    require(event.finish != engine::FinishReason::out_of_memory,
            "a request does not fit into the cache: allow it more memory with --kv-gib");
    require(event.token >= 0 || event.finish == engine::FinishReason::stop,
            "a request ended early: {}", engine::finish_name(event.finish));
  }

  void take(const std::vector<engine::TokenEvent>& events) {
    const Clock::time_point now = Clock::now();
    if (progress_.size() % kNotedSteps == 0) {  // it asks the device
      const engine::EngineStats stats = engine_.stats();
      result_.most_running = std::max(result_.most_running, static_cast<int>(stats.running));
      result_.most_bytes = std::max(result_.most_bytes, stats.page_bytes);
    }
    for (const engine::TokenEvent& event : events) {
      check(event);
      if (event.token >= 0) {
        take_token(event.request, now);
      }
      if (event.finish != engine::FinishReason::none) {
        end(event.request);
      }
    }
    progress_.push_back({seconds_between(start_, now), tokens_});
  }

  void take_token(engine::RequestId request, Clock::time_point now) {
    Answer& answer = answers_.at(request);
    answer.first = answer.tokens == 0 ? now : answer.first;
    ++tokens_;
    if (++answer.tokens < answer.length) {
      return;
    }
    if (answer.length > 1) {
      result_.seconds_per_token.push_back(seconds_between(answer.first, now) / (answer.length - 1));
    }
    if (answer.length < plan_.output) {
      engine_.stop(request, 0);
    }
  }

  // Tokens per second over the middle half of the output tokens.
  [[nodiscard]] double steady_tokens_per_s() const {
    const auto reached = [&](std::int64_t tokens) {
      return *std::ranges::lower_bound(progress_, tokens, {}, &Point::tokens);
    };
    const Point begin = reached(tokens_ / 4);
    const Point end = reached(tokens_ - tokens_ / 4);
    return end.tokens == begin.tokens
               ? result_.output_tokens_per_s
               : static_cast<double>(end.tokens - begin.tokens) / (end.seconds - begin.seconds);
  }

  void end(engine::RequestId request) {
    const engine::CacheUsage usage = engine_.take_usage(request, 0);
    live_ += usage.live_entries;
    dense_ += usage.dense_entries;
    answers_.erase(request);
  }

  int vocab_;
  FullLoadPlan plan_;
  engine::Engine engine_;
  Random random_{1};
  FullLoadResult result_;
  std::int64_t tokens_ = 0;
  std::int64_t live_ = 0;
  std::int64_t dense_ = 0;
  Clock::time_point start_;
  std::vector<Point> progress_;  // after each step
  std::map<engine::RequestId, Answer> answers_;
};

}  // namespace

FullLoadResult run_full_load(const engine::Backend& backend, const engine::EngineConfig& config,
                             const FullLoadPlan& plan) {
  return FullLoad(backend, config, plan).run();
}

}  // namespace winnow::cli
