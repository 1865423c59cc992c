// Runs programs that a model wrote in a sandbox.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace winnow::eval {

struct SandboxLimits {
  double seconds = 10.0;                            // of wall clock, and of processor time
  std::size_t memory_bytes = std::size_t{1} << 30;  // of address space
  std::size_t output_bytes = std::size_t{1} << 16;  // of output: only the last bytes are kept
};

struct SandboxResult {
  int exit_code = -1;  // -1: did not exit by itself
  int signal = 0;      // the signal that ended it
  bool timed_out = false;
  std::string output;  // standard output and error
};

/// Runs `command` (an absolute path and its arguments) with `input` on standard input, without
/// privileges and on one thread. Forbidden operations fail with EPERM: making processes or
/// threads, opening files for writing or changing any, opening sockets, signalling or inspecting
/// other processes (seccomp allows only what a calculating program needs; Linux, x86-64 and
/// arm64). Rlimits bound memory, processor time and files; after `seconds` it is killed. If user
/// namespaces are allowed, it has no network devices either. Throws Error when it cannot be
/// contained or started.
SandboxResult run_sandboxed(const std::vector<std::string>& command, const std::string& input,
                            const SandboxLimits& limits = {});

}  // namespace winnow::eval
