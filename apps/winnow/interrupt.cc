#include "apps/winnow/interrupt.h"

#include <csignal>

namespace winnow::cli {
namespace {

volatile std::sig_atomic_t signalled = 0;

void note(int /*signal*/) {
  signalled = 1;
}

void catch_once(int signal) {
  struct sigaction action = {};
  action.sa_handler = note;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void catch_termination() {
  catch_once(SIGTERM);
}

void catch_interrupts() {
  catch_once(SIGINT);
  // Makes a limit on file sizes cause a failed write instead of a signal.
  std::signal(SIGXFSZ, SIG_IGN);
}

void forget_interrupt() {
  signalled = 0;
  catch_once(SIGINT);
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
