#include "eval/sandbox.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "eval/sandbox_filter.h"

namespace winnow::eval {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNotContained = 125;  // exit codes of the child before it runs the program
constexpr int kNotStarted = 126;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  void close() {
    if (fd_ >= 0) {
      ::close(std::exchange(fd_, -1));
    }
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

struct Pipe {
  Descriptor read;
  Descriptor write;
};

Pipe make_pipe() {
  std::array<int, 2> fds{};
  require_system(::pipe2(fds.data(), O_CLOEXEC) == 0, "sandbox: cannot make a pipe");
  return {Descriptor(fds[0]), Descriptor(fds[1])};
}

bool limit(int resource, rlim_t value) {
  const rlimit both{value, value};
  return ::setrlimit(static_cast<__rlimit_resource_t>(resource), &both) == 0;
}

// Everything the child needs, prepared before the fork: between fork and exec nothing may be
struct Preparation {
  std::vector<char*> arguments;
  std::array<char*, 5> environment;
  std::vector<sock_filter> filter;
  rlim_t seconds;
  rlim_t memory;
  int input;
  int output;
};

bool contain(Preparation& p) {
  // Removes network devices, if that is allowed; sockets are refused in any case.
  (void)::unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC);
  constexpr rlim_t kStack = rlim_t{64} << 20;
  constexpr rlim_t kFiles = 32;
  if (!limit(RLIMIT_CORE, 0) || !limit(RLIMIT_FSIZE, 0) || !limit(RLIMIT_NOFILE, kFiles) ||
      !limit(RLIMIT_STACK, kStack) || !limit(RLIMIT_CPU, p.seconds) ||
      !limit(RLIMIT_AS, p.memory)) {
    return false;
  }
  const sock_fprog program{static_cast<unsigned short>(p.filter.size()), p.filter.data()};
  return ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

[[noreturn]] void become_program(Preparation& p) {
  const bool ready = ::setsid() >= 0 && ::chdir("/") == 0 && ::dup2(p.input, 0) == 0 &&
                     ::dup2(p.output, 1) == 1 && ::dup2(p.output, 2) == 2;
  if (!ready || !contain(p)) {
    ::_exit(kNotContained);
  }
  ::execve(p.arguments[0], p.arguments.data(), p.environment.data());
  ::_exit(kNotStarted);
}

// Writes the program's input and reads its output until it closes the output or time is up.
bool exchange(Descriptor& to, Descriptor& from, const std::string& input, Clock::time_point end,
              std::size_t most, std::string& output) {
  std::size_t written = 0;
  std::array<char, 4096> buffer;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) {
      return false;
    }
    std::array<pollfd, 2> events{{{from.get(), POLLIN, 0}, {to.get(), POLLOUT, 0}}};
    if (::poll(events.data(), 2, static_cast<int>(std::min<long long>(left, 1000))) < 0) {
      require_system(errno == EINTR, "sandbox: cannot wait for the program");
      continue;
    }
    if (to.get() >= 0 && events[1].revents != 0) {
      const auto count = ::write(to.get(), input.data() + written, input.size() - written);
      written += count > 0 ? static_cast<std::size_t>(count) : 0;
      if (written == input.size() || (count < 0 && errno != EAGAIN && errno != EINTR)) {
        to.close();
      }
    }
    if (events[0].revents != 0) {
      const auto count = ::read(from.get(), buffer.data(), buffer.size());
      if (count == 0) {
        return true;
      }
      output.append(buffer.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
      if (output.size() > 2 * most) {
        output.erase(0, output.size() - most);
      }
    }
  }
}

// Waits until `end` for a program that has closed its output.
bool wait_until(pid_t child, Clock::time_point end, int& status) {
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() >= end) {
      return false;
    }
    ::usleep(1000);
  }
  return true;
}

}  // namespace

SandboxResult run_sandboxed(const std::vector<std::string>& command, const std::string& input,
                            const SandboxLimits& limits) {
  std::vector<std::string> words = command;
  std::array<std::string, 4> variables{"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "PYTHONHASHSEED=0",
                                       "OMP_NUM_THREADS=1"};
  Pipe to_program = make_pipe();
  Pipe from_program = make_pipe();
  Preparation preparation{.arguments = {},
                          .environment = {},
                          .filter = sandbox_filter(),
                          .seconds = static_cast<rlim_t>(std::ceil(limits.seconds)) + 1,
                          .memory = static_cast<rlim_t>(limits.memory_bytes),
                          .input = to_program.read.get(),
                          .output = from_program.write.get()};
  require(!preparation.filter.empty(), "sandbox: not supported on this processor");
  for (std::string& word : words) {
    preparation.arguments.push_back(word.data());
  }
  preparation.arguments.push_back(nullptr);
  std::ranges::transform(variables, preparation.environment.begin(),
                         [](std::string& variable) { return variable.data(); });
  preparation.environment.back() = nullptr;

  const pid_t child = ::fork();
  require_system(child >= 0, "sandbox: cannot make a process");
  if (child == 0) {
    become_program(preparation);
  }
  to_program.read.close();
  from_program.write.close();
  ::fcntl(to_program.write.get(), F_SETFL, O_NONBLOCK);
  const auto old = std::signal(SIGPIPE, SIG_IGN);  // a program need not read its input
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(limits.seconds));
  SandboxResult result;
  int status = 0;
  result.timed_out = !exchange(to_program.write, from_program.read, input, end, limits.output_bytes,
                               result.output) ||
                     !wait_until(child, end, status);
  std::signal(SIGPIPE, old);
  if (result.timed_out) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
  }
  require(!WIFEXITED(status) || WEXITSTATUS(status) != kNotContained,
          "sandbox: programs cannot be contained here (seccomp filters are not allowed)");
  require(!WIFEXITED(status) || WEXITSTATUS(status) != kNotStarted, "sandbox: cannot start {}",
          command.front());
  result.output.erase(0,
                      result.output.size() - std::min(result.output.size(), limits.output_bytes));
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return result;
}

}  // namespace winnow::eval
