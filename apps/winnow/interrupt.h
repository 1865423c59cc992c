// Ctrl-C and other requests to end, polled between steps.
#pragma once

#include <exception>

namespace winnow::cli {

/// Ends a command that has no partial results to show.
struct Interrupted : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "interrupted"; }
};

/// Makes the first Ctrl-C only set a flag; a second one ends the program at once. The same for
/// SIGTERM, which service managers send, and for SIGHUP, which a terminal that closes sends.
void catch_interrupts();
/// Clears the flag after a Ctrl-C was handled: the next one sets it again.
void forget_interrupt();
bool interrupted();
/// Whether that was a Ctrl-C, after which a conversation goes on.
bool interrupted_by_keyboard();
/// The exit status of a command that a signal has ended, as shells have it: 130 after a Ctrl-C.
int interrupt_status();
/// Throws Interrupted after a Ctrl-C.
void stop_if_interrupted();

}  // namespace winnow::cli
