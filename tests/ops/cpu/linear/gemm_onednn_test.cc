#include "ops/cpu/linear/gemm_onednn.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include "ops/random_values.h"

namespace winnow::ops::cpu {
namespace {

std::atomic<int> handled = 0;

void scribble(int /*signal*/) {
  std::array<volatile char, 16384> stack;
  for (volatile char& byte : stack) {
    byte = '\x5A';
  }
  ++handled;
}

/// While it exists, signals interrupt the calling thread continuously.
class Interruptions {
 public:
  Interruptions() {
    struct sigaction action = {};
    action.sa_handler = scribble;
    ::sigaction(SIGUSR1, &action, &before_);
    thread_ = std::thread([this, target = ::pthread_self()] {
      while (!done_) {
        ::pthread_kill(target, SIGUSR1);
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    });
  }
  ~Interruptions() {
    done_ = true;
    thread_.join();
    ::sigaction(SIGUSR1, &before_, nullptr);
  }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;

 private:
  struct sigaction before_ = {};
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

// A host program may handle signals while our products run.
TEST(LinearOneDnn, SignalHandlersDoNotDisturbProducts) {
  constexpr std::size_t kRows = 384;
  constexpr std::size_t kDepth = 512;
  constexpr std::size_t kCols = 96;
  const std::vector<float> a = testing::normal(kRows * kDepth, 1);
  const std::vector<float> b = testing::normal(kDepth * kCols, 2);
  const auto product = [&] {
    std::vector<float> out(kRows * kCols);
    onednn_product<float>(plain(Matrix<const float>(a.data(), kRows, kDepth)),
                          transposed(Matrix<const float>(b.data(), kCols, kDepth)),
                          {out.data(), kRows, kCols}, Write::replace);
    return out;
  };
  const std::vector<float> undisturbed = product();
  handled = 0;
  const Interruptions interruptions;
  for (int run = 0; run < 300; ++run) {
    ASSERT_EQ(product(), undisturbed);
  }
  EXPECT_GT(handled, 0);  // between products
}

}  // namespace
}  // namespace winnow::ops::cpu
