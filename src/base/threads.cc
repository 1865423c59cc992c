#include "base/threads.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/no_signals.h"
#include "base/note.h"

namespace winnow {
namespace {

constexpr std::size_t kCacheLine = 64;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Busy waiting: first without a system call, for as long as a thread switch takes, then yielding
/// the core to other threads.
class Spin {
 public:
  void once() {
    if (++count_ < kPauses) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }

  /// True once the wait has lasted so long that sleeping is better.
  [[nodiscard]] bool long_enough() const {
    return count_ >= kPauses && std::chrono::steady_clock::now() - start_ > kLongest;
  }

 private:
  static constexpr int kPauses = 1000;
  static constexpr std::chrono::milliseconds kLongest{1};
  int count_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

thread_local bool inside_loop = false;

/// The caller of run() and `threads - 1` workers. run() does not wait for a worker that the system
/// does not schedule in time: the others do its share.
class Team {  // NOLINT(clang-analyzer-optin.performance.Padding): on purpose
 public:
  explicit Team(int threads) {
    for (int thread = 1; thread < threads; ++thread) {
      workers_.emplace_back([this, thread] { serve(thread); });
    }
  }

  ~Team() {
    stopping_ = true;
    state_ += 2;  // still closed, but a different value, which wakes waiting workers
    state_.notify_all();
    for (auto& worker : workers_) {
      worker.join();
    }
  }

  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  [[nodiscard]] int size() const { return static_cast<int>(workers_.size()) + 1; }

  void run(std::size_t count, detail::Cut cut, detail::RangeFunction function,
           const void* context) {
    const std::lock_guard one_loop_at_a_time(mutex_);
    function_ = function;
    context_ = context;
    count_ = count;
    cut_ = cut;
    next_ = 0;
    ++state_;  // open
    state_.notify_all();
    take_ranges(0);
    ++state_;  // closed: no more threads may enter
    for (Spin spin; inside_ != 0;) {
      spin.once();
    }
    if (error_ != nullptr) {
      std::rethrow_exception(std::exchange(error_, nullptr));
    }
  }

 private:
  static bool is_open(std::uint32_t state) { return state % 2 == 1; }

  void serve(int thread) {
    const NoSignals no_signals;  // signals are for the program's own threads
    std::uint32_t served = 0;
    while (!stopping_) {
      served = await_loop(served);
      ++inside_;
      // Only now is it certain that run() waits for us, if the loop is still open.
      if (is_open(state_)) {
        take_ranges(thread);
      }
      --inside_;
    }
  }

  /// Returns the state of an open loop other than `served`, or any state when stopping.
  std::uint32_t await_loop(std::uint32_t served) {
    Spin spin;
    for (;;) {
      const std::uint32_t state = state_;
      if (stopping_ || (is_open(state) && state != served)) {
        return state;
      }
      if (spin.long_enough()) {
        state_.wait(state);
      } else {
        spin.once();
      }
    }
  }

  void take_ranges(int thread) {
    inside_loop = true;
    try {
      std::size_t begin = next_;
      while (begin < count_) {
        const std::size_t end = begin + range_size(count_ - begin);
        if (next_.compare_exchange_weak(begin, end)) {
          function_(context_, begin, end, thread);
          begin = next_;
        }
      }
    } catch (...) {
      give_up(std::current_exception());
    }
    inside_loop = false;
  }

  /// Ends the loop: no thread takes any of the remaining indices.
  void give_up(std::exception_ptr error) {
    const std::lock_guard lock(error_mutex_);
    if (error_ == nullptr) {
      error_ = std::move(error);
    }
    next_ = count_;
  }

  [[nodiscard]] std::size_t range_size(std::size_t left) const {
    const auto shares = 2 * static_cast<std::size_t>(size());
    return cut_ == detail::Cut::single ? 1 : std::max<std::size_t>(1, left / shares);
  }

  std::mutex mutex_;
  // The loop. Written only while it is closed and no thread is inside.
  detail::RangeFunction function_ = nullptr;
  const void* context_ = nullptr;
  std::size_t count_ = 0;
  detail::Cut cut_ = detail::Cut::single;

  alignas(kCacheLine) std::atomic<std::uint32_t> state_ = 0;  // odd: a loop is open
  std::atomic<bool> stopping_ = false;
  alignas(kCacheLine) std::atomic<std::size_t> next_ = 0;  // the first index not taken yet
  alignas(kCacheLine) std::atomic<int> inside_ = 0;        // workers that may be in the loop
  std::mutex error_mutex_;
  std::exception_ptr error_;  // the first exception of a body
  std::vector<std::thread> workers_;
};

int available_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) {
    return std::max(1, CPU_COUNT(&cores));
  }
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

std::unique_ptr<Team>& team() {
  static auto instance = std::make_unique<Team>(available_cores());
  return instance;
}

// Held shared by code that relies on the team, and exclusively by code that replaces it.
std::shared_mutex& team_mutex() {
  static std::shared_mutex mutex;
  return mutex;
}

}  // namespace

FixedThreads::FixedThreads() : lock_(team_mutex()) {}

void set_threads(int count) {
  const int threads = count > 0 ? count : available_cores();
  const std::scoped_lock alone(team_mutex());
  if (threads != team()->size()) {
    if (const int cores = available_cores(); threads > cores) {
      note(
          fmt::format("{} threads, but this process may use {} cores only: more threads than "
                      "cores are slower",
                      threads, cores));
    }
    team() = std::make_unique<Team>(threads);
  }
}

int thread_count() {
  return team()->size();
}

namespace detail {

void run_loop(std::size_t count, Cut cut, RangeFunction function, const void* context) {
  if (count == 0) {
    return;
  }
  if (count > 1 && !inside_loop && thread_count() > 1) {
    return team()->run(count, cut, function, context);
  }
  if (cut == Cut::shrinking) {
    return function(context, 0, count, 0);
  }
  for (std::size_t i = 0; i < count; ++i) {
    function(context, i, i + 1, 0);
  }
}

}  // namespace detail
}  // namespace winnow
