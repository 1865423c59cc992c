#include "base/no_signals.h"

#include <pthread.h>

#include <initializer_list>

namespace winnow {
namespace {

thread_local int alive = 0;  // instances of this thread

}  // namespace

NoSignals::NoSignals() {
  if (alive++ == 0) {
    sigset_t blocked;
    ::sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
      ::sigdelset(&blocked, fault);
    }
    ::pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
}

NoSignals::~NoSignals() {
  if (--alive == 0) {
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
}

}  // namespace winnow
