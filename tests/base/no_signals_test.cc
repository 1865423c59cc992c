#include "base/no_signals.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <csignal>

#include "base/threads.h"

namespace winnow {
namespace {

bool is_blocked(int signal) {
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return ::sigismember(&mask, signal) == 1;
}

TEST(NoSignals, LastsAsLongAsTheOutermost) {
  ASSERT_FALSE(is_blocked(SIGINT));
  {
    const NoSignals outer;
    { const NoSignals inner; }
    EXPECT_TRUE(is_blocked(SIGINT));
    EXPECT_TRUE(is_blocked(SIGPROF));
    EXPECT_FALSE(is_blocked(SIGSEGV));
  }
  EXPECT_FALSE(is_blocked(SIGINT));
}

TEST(NoSignals, OurThreadsLeaveThemToTheProgram) {
  set_threads(3);
  std::atomic<int> open = 0;
  const auto caller = ::pthread_self();
  parallel_each(1000, [&](std::size_t, int) {
    open += ::pthread_equal(::pthread_self(), caller) == 0 && !is_blocked(SIGINT) ? 1 : 0;
  });
  EXPECT_EQ(open, 0);
  EXPECT_FALSE(is_blocked(SIGINT));
  set_threads(0);
}

}  // namespace
}  // namespace winnow
