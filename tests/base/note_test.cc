#include "base/note.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace winnow {
namespace {

// Sends standard output and error to files, in the end back to where they went.
class Outputs {
 public:
  explicit Outputs(bool in_one_file) {
    std::string pattern = (std::filesystem::temp_directory_path() / "winnow-XXXXXX").string();
    directory_ = ::mkdtemp(pattern.data());
    std::fflush(stdout);
    send(STDOUT_FILENO, "output");
    send(STDERR_FILENO, in_one_file ? "output" : "error");
  }
  ~Outputs() { std::filesystem::remove_all(directory_); }
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;

  static void print(const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
    wrote_to_output(text);
  }
  // Ends it: what is in both files.
  std::string text() {
    std::fflush(stdout);
    for (int stream : {STDOUT_FILENO, STDERR_FILENO}) {
      ::dup2(saved_[stream], stream);
      ::close(saved_[stream]);
    }
    wrote_to_output("\n");
    return read("output") + read("error");
  }

 private:
  void send(int stream, const char* name) {
    saved_[stream] = ::dup(stream);
    const int file = ::open((directory_ / name).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(file, stream);
    ::close(file);
  }
  [[nodiscard]] std::string read(const char* name) const {
    std::ifstream file(directory_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path directory_;
  int saved_[3] = {};
};

TEST(Note, BeginsALineWhereBothOutputsAreOne) {
  Outputs outputs(/*in_one_file=*/true);
  Outputs::print("half a ");
  Outputs::print("line");
  note("first");
  note("second");
  Outputs::print("a line\n");
  note("third");
  EXPECT_EQ(outputs.text(), "half a line\nwinnow: first\nwinnow: second\na line\nwinnow: third\n");
}

TEST(Note, LeavesALineOpenThatGoesElsewhere) {
  Outputs outputs(/*in_one_file=*/false);
  Outputs::print("half a line");
  note("first");
  EXPECT_EQ(outputs.text(), "half a linewinnow: first\n") << "the files, one after the other";
}

TEST(Note, OfWhatIsDrawnElsewhereOnTheScreenKeepsTheLine) {
  Outputs outputs(/*in_one_file=*/true);
  Outputs::print("a line\n");
  Outputs::print("\x1b[1;1Hstatus\x1b[2;1H");
  note("first");
  EXPECT_EQ(outputs.text(), "a line\n\x1b[1;1Hstatus\x1b[2;1Hwinnow: first\n");
}

}  // namespace
}  // namespace winnow
