// Ctrl-C, polled between steps.
#pragma once

#include <exception>

namespace winnow::cli {

/// Unwinds a command that has nothing to show before its work is done.
struct Interrupted : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "interrupted"; }
};

/// From now on the first Ctrl-C only sets a flag; a second one ends the program at once.
void catch_interrupts();
/// The same for SIGTERM: what service managers send.
void catch_termination();
/// Forgets a Ctrl-C that has been dealt with: the next one sets the flag again.
void forget_interrupt();
bool interrupted();
/// Throws Interrupted after a Ctrl-C.
void stop_if_interrupted();

}  // namespace winnow::cli
