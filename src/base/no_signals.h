// Blocks signals in a thread for a while.
#pragma once

#include <csignal>

namespace winnow {

/// While an instance lives, its thread handles no signals except its own faults; others wait or go
/// to other threads. Only the outermost instance of a thread makes a system call, which takes half
/// a microsecond.
class NoSignals {
 public:
  NoSignals();
  ~NoSignals();
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_ = {};
};

}  // namespace winnow
