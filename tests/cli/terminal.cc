#include "cli/terminal.h"

#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>

namespace winnow::testing {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

// In the child: only async-signal-safe calls, because the tests have threads.
[[noreturn]] void become(char* const* argv, char* const* environment) {
  if (::chdir(WINNOW_SOURCE_DIR) == 0) {
    ::execve(argv[0], argv, environment);
  }
  ::_exit(127);
}

}  // namespace

Terminal::Terminal(const std::vector<std::string>& arguments, const TerminalKind& kind) {
  std::vector<std::string> words{WINNOW_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  std::string terminal = "TERM=" + kind.term;
  std::string locale = "LC_ALL=" + kind.locale;
  const std::array<char*, 3> environment{terminal.data(), locale.data(), nullptr};
  const winsize size{.ws_row = 24, .ws_col = kind.columns, .ws_xpixel = 0, .ws_ypixel = 0};
  process_ = ::forkpty(&fd_, nullptr, nullptr, &size);
  if (process_ < 0) {
    throw std::runtime_error("no terminal");
  }
  if (process_ == 0) {
    become(argv.data(), environment.data());
  }
}

Terminal::~Terminal() {
  if (!reaped_) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  ::close(fd_);
}

void Terminal::type(const std::string& keys) const {
  if (::write(fd_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size())) {
    throw std::runtime_error("the terminal takes no keys");
  }
}

// False: nothing arrived, or the child has ended.
bool Terminal::read_more(int milliseconds) {
  pollfd output{fd_, POLLIN, 0};
  std::array<char, 4096> buffer{};
  const ssize_t count =
      ::poll(&output, 1, milliseconds) > 0 ? ::read(fd_, buffer.data(), buffer.size()) : 0;
  if (count > 0) {
    transcript_.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return count > 0;
}

bool Terminal::await(const std::string& text) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    const std::size_t found = transcript_.find(text, seen_);
    if (found != std::string::npos) {
      seen_ = found + text.size();
      return true;
    }
    pollfd output{fd_, POLLIN, 0};
    const bool over = ::poll(&output, 1, 0) > 0 && (output.revents & POLLIN) == 0;
    if (over || std::chrono::steady_clock::now() > deadline) {
      return false;
    }
    read_more(100);
  }
}

int Terminal::wait() {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  int status = 0;
  while (::waitpid(process_, &status, WNOHANG) != process_) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::runtime_error("winnow does not end: " + transcript_);
    }
    read_more(20);
  }
  reaped_ = true;
  while (read_more(0)) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace winnow::testing
