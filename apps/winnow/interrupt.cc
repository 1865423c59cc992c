#include "interrupt.h"

#include <array>
#include <csignal>
#include <cstddef>

namespace winnow::cli {
namespace {

volatile std::sig_atomic_t signalled = 0;

void note(int /*signal*/) {
  signalled = 1;
}

// A matrix product of oneDNN keeps values below its stack pointer, farther than the ABI allows. A
// handler on the same stack overwrites them, and the product writes where it should not.
void handle_on_another_stack() {
  static std::array<std::byte, 64UL * 1024> memory;
  stack_t stack = {};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  ::sigaltstack(&stack, nullptr);
}

void catch_once(int signal) {
  handle_on_another_stack();
  struct sigaction action = {};
  action.sa_handler = note;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_ONSTACK);
  ::sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void catch_termination() {
  catch_once(SIGTERM);
}

void catch_interrupts() {
  catch_once(SIGINT);
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
