// Programs that a model wrote, run where they can do no harm.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace winnow::eval {

struct SandboxLimits {
  double seconds = 10.0;                            // of wall clock, and of processor time
  std::size_t memory_bytes = std::size_t{1} << 30;  // of address space
  std::size_t output_bytes = std::size_t{1} << 16;  // kept of what it writes: the last ones
};

struct SandboxResult {
  int exit_code = -1;  // -1: it did not exit by itself
  int signal = 0;      // that ended it
  bool timed_out = false;
  std::string output;  // standard output and error
};

/// Runs `command` (an absolute path and its arguments) with `input` on standard input, without
/// privileges and on one thread. What it may not do fails there with EPERM: make processes or
/// threads, open files for writing or change any, open sockets, signal others, look at other
/// processes (seccomp allows what a calculating program needs and nothing else; Linux, x86-64 and
/// arm64). Rlimits bound memory, processor time and files; after `seconds` it is killed. Where user
/// namespaces are allowed it has no network devices either. Throws Error when it cannot be
/// contained or started.
SandboxResult run_sandboxed(const std::vector<std::string>& command, const std::string& input,
                            const SandboxLimits& limits = {});

}  // namespace winnow::eval
