// Runs the winnow binary as a user does: with arguments, and returns exit code and both outputs.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace winnow::testing {

inline constexpr const char* kRetrofitted = "assets/dms-cr8";
inline constexpr const char* kBase = "assets/base";

/// A prompt: long enough that a compression ratio of 4 shows.
inline constexpr const char* kPrompt =
    "The quick brown fox jumps over the lazy dog, and then the dog looks at the fox, and the fox "
    "looks at the dog, and neither of them knows what to say about the weather of this morning.";

/// A directory that is deleted with the object.
class TempDirectory {
 public:
  TempDirectory();
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// The path of `name` inside.
  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }
  /// Writes `content` to `name` inside and returns its path.
  [[nodiscard]] std::string write(const std::string& name, const std::string& content) const;

 private:
  std::filesystem::path path_;
};

std::string read_text(const std::filesystem::path& file);

struct CommandResult {
  int code = -1;  // the exit code; 128 + signal for a command that a signal ended, as in a shell
  std::string out;
  std::string err;
};

/// A running winnow. Outputs go to files, so that no pipe can fill up and stall it. It runs in the
/// source directory: the paths of assets/ and tests/fixtures can be given as a user would.
class Command {
 public:
  explicit Command(const std::vector<std::string>& arguments, const std::string& input = "");
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  /// Its output so far.
  [[nodiscard]] std::string output() const { return read_text(directory_.path() / "out"); }
  /// Waits until it has printed something, or ended.
  void await_output();
  /// Waits until it has its own handler for `signal`, or ended.
  void await_handler(int signal);
  void send(int signal) const;
  CommandResult wait();

 private:
  [[nodiscard]] bool ended();

  TempDirectory directory_;
  pid_t process_ = -1;
  int status_ = 0;
  bool reaped_ = false;
};

inline CommandResult run_winnow(const std::vector<std::string>& arguments,
                                const std::string& input = "") {
  return Command(arguments, input).wait();
}

/// What the command prints, which must succeed.
nlohmann::json run_json(const std::vector<std::string>& arguments);

}  // namespace winnow::testing
