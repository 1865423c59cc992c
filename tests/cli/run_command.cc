#include "cli/run_command.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>

namespace winnow::testing {
namespace {

void check(int error, const char* what) {
  if (error != 0) {
    throw std::system_error(error, std::generic_category(), what);
  }
}

void nap() {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

/// The destinations of a child's standard streams, and its working directory.
class SpawnActions {
 public:
  SpawnActions() { check(::posix_spawn_file_actions_init(&actions_), "file_actions_init"); }
  ~SpawnActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;

  void open(int stream, const std::string& file, int flags) {
    check(::posix_spawn_file_actions_addopen(&actions_, stream, file.c_str(), flags, 0600),
          file.c_str());
  }
  void start_in(const char* directory) {
    check(::posix_spawn_file_actions_addchdir_np(&actions_, directory), directory);
  }
  [[nodiscard]] const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_ = {};
};

// Linux: reads from /proc whether a process has a handler for the signal.
bool handles(pid_t process, int signal) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  constexpr std::string_view kKey = "SigCgt:";
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(kKey)) {
      const auto mask = std::stoull(line.substr(kKey.size()), nullptr, 16);
      return ((mask >> static_cast<unsigned>(signal - 1)) & 1U) != 0;
    }
  }
  return false;
}

}  // namespace

TempDirectory::TempDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "winnow-cli-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error("cannot make " + name);
  }
  path_ = name;
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempDirectory::write(const std::string& name, const std::string& content) const {
  std::ofstream(file(name), std::ios::binary) << content;
  return file(name);
}

std::string read_text(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

Command::Command(const std::vector<std::string>& arguments, const std::string& input) {
  std::vector<std::string> words{WINNOW_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);

  SpawnActions actions;
  actions.open(STDIN_FILENO, directory_.write("in", input), O_RDONLY);
  actions.open(STDOUT_FILENO, directory_.file("out"), O_WRONLY | O_CREAT);
  actions.open(STDERR_FILENO, directory_.file("err"), O_WRONLY | O_CREAT);
  actions.start_in(WINNOW_SOURCE_DIR);
  check(::posix_spawn(&process_, argv[0], actions.get(), nullptr, argv.data(), environ), argv[0]);
}

Command::~Command() {
  if (!ended()) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, &status_, 0);
  }
}

bool Command::ended() {
  reaped_ = reaped_ || ::waitpid(process_, &status_, WNOHANG) == process_;
  return reaped_;
}

void Command::await_output() {
  while (!ended() && output().empty()) {
    nap();
  }
}

void Command::await_handler(int signal) {
  while (!ended() && !handles(process_, signal)) {
    nap();
  }
}

void Command::send(int signal) const {
  if (!reaped_) {  // the id may belong to another process now
    ::kill(process_, signal);
  }
}

CommandResult Command::wait() {
  if (!reaped_) {
    ::waitpid(process_, &status_, 0);
    reaped_ = true;
  }
  const int code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  return {code, output(), read_text(directory_.path() / "err")};
}

nlohmann::json run_json(const std::vector<std::string>& arguments) {
  const CommandResult result = run_winnow(arguments);
  EXPECT_EQ(result.code, 0) << result.err;
  return nlohmann::json::parse(result.out);
}

}  // namespace winnow::testing
