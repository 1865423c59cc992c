#include "eval/python.h"

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "base/error.h"

namespace winnow::eval {
namespace {

// The interpreter's real path: a name on PATH may be a script that starts another process,
// which the sandbox would refuse.
std::string resolve(const std::string& interpreter) {
  require(interpreter.find('\'') == std::string::npos,
          "--python {}: the name contains characters that are not allowed", interpreter);
  const std::string command =
      fmt::format("'{}' -c 'import sys; print(sys.executable)' 2>/dev/null", interpreter);
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  require_system(pipe != nullptr, "--python {}: cannot run it", interpreter);
  std::array<char, 4096> line{};
  const bool read = std::fgets(line.data(), line.size(), pipe) != nullptr;
  const int status = ::pclose(pipe);
  require(read && status == 0, "--python {}: cannot run it; programs need a Python 3", interpreter);
  const std::string path(line.data());
  std::error_code error;
  const auto real = std::filesystem::canonical(path.substr(0, path.find('\n')), error);
  require(!error, "--python {}: {}", interpreter, error.message());
  return real.string();
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) {
    return "";
  }
  const std::size_t before = text.rfind('\n', end);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  constexpr std::size_t kLongest = 200;
  return text.substr(begin, std::min(kLongest, end + 1 - begin));
}

}  // namespace

SandboxedPython::SandboxedPython(const std::string& interpreter, const SandboxLimits& limits)
    : interpreter_(resolve(interpreter)), limits_(limits) {
  const Verdict verdict = passes("assert sum(range(4)) == 6\nimport math, typing, re\n");
  require(verdict.passed, "--python {}: cannot run a trivial program in the sandbox: {}",
          interpreter, verdict.why);
}

SandboxedPython::Verdict SandboxedPython::passes(const std::string& program) const {
  // The program cannot guess what it must print at its end.
  std::random_device random;
  const std::string token = fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
  const std::string whole = fmt::format("{}\nprint('\\n{}')\n", program, token);
  const SandboxResult result = run_sandboxed(
      {interpreter_, "-I", "-S", "-B", "-c", "import sys; exec(sys.stdin.read())"}, whole, limits_);
  if (result.timed_out) {
    return {false, "timed out"};
  }
  if (result.signal != 0) {
    return {false, fmt::format("signal {}", result.signal)};
  }
  if (result.exit_code != 0) {
    return {false, fmt::format("exit code {}: {}", result.exit_code, last_line(result.output))};
  }
  const bool passed = last_line(result.output) == token;
  return {passed, passed ? "" : "left before its end"};
}

}  // namespace winnow::eval
