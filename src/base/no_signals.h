// Threads that handle no signals for a while.
#pragma once

#include <csignal>

namespace winnow {

/// While one lives, its thread handles no signals but those of its own faults; they wait, or go to
/// other threads. Only the outermost of a thread asks the system, which takes half a microsecond.
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
