// Ctrl-C, polled between steps.
#pragma once

#include <exception>

namespace winnow::cli {

/// Ends a command that has no partial results to show.
struct Interrupted : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "interrupted"; }
};

/// Makes the first Ctrl-C only set a flag; a second one ends the program at once.
void catch_interrupts();
/// The same for SIGTERM, which service managers send.
void catch_termination();
/// Clears the flag after a Ctrl-C was handled: the next one sets it again.
void forget_interrupt();
bool interrupted();
/// Throws Interrupted after a Ctrl-C.
void stop_if_interrupted();

}  // namespace winnow::cli
