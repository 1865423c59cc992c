#include "interrupt.h"

#include <csignal>

namespace winnow::cli {
namespace {

volatile std::sig_atomic_t signalled = 0;

void note(int /*signal*/) {
  signalled = 1;
}

}  // namespace

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = note;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  // A limit on file sizes then shows as a failed write.
  std::signal(SIGXFSZ, SIG_IGN);
}

bool interrupted() {
  return signalled != 0;
}

void stop_if_interrupted() {
  if (interrupted()) {
    throw Interrupted();
  }
}

}  // namespace winnow::cli
