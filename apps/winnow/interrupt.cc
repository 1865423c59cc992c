#include "apps/winnow/interrupt.h"

#include <csignal>

namespace winnow::cli {
namespace {

volatile std::sig_atomic_t signalled = 0;

void remember(int signal) {
  signalled = signal;
}

void catch_once(int signal) {
  struct sigaction action = {};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void catch_interrupts() {
  catch_once(SIGINT);
  catch_once(SIGTERM);
  if (std::signal(SIGHUP, SIG_IGN) != SIG_IGN) {  // nohup ignores it
    catch_once(SIGHUP);
  }
  // Makes a limit on file sizes cause a failed write instead of a signal.
  std::signal(SIGXFSZ, SIG_IGN);
}

void forget_interrupt() {
  signalled = 0;
  catch_once(SIGINT);
}

bool interrupted_by_keyboard() {
  return signalled == SIGINT;
}

int interrupt_status() {
  return 128 + (signalled != 0 ? signalled : SIGINT);
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
