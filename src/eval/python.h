// Python programs in the sandbox.
#pragma once

#include <filesystem>
#include <string>

#include "eval/sandbox.h"

namespace winnow::eval {

class SandboxedPython {
 public:
  /// `interpreter`: a path or a name on PATH. Throws Error when it cannot run a trivial program in
  /// the sandbox.
  explicit SandboxedPython(const std::string& interpreter, const SandboxLimits& limits = {});

  struct Verdict {
    bool passed = false;
    std::string why;  // "", "timed out", "exit code 1: AssertionError", "signal 9"
  };
  /// Whether `program` runs to its very end. A program that exits early fails, whatever its
  /// exit code.
  [[nodiscard]] Verdict passes(const std::string& program) const;

 private:
  std::string interpreter_;
  SandboxLimits limits_;
};

}  // namespace winnow::eval
