// winnow completions and winnow man-pages: they agree with --help.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>

#include "cli/run_command.h"

namespace winnow::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The output of a shell; empty if the shell is not installed.
std::string shell(const std::string& command) {
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string out;
  std::array<char, 4096> buffer{};
  for (std::size_t count = 0; (count = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    out.append(buffer.data(), count);
  }
  ::pclose(pipe);
  return out;
}

// Bash's completions for the last of `words`.
std::string offered(const std::string& words) {
  const TempDirectory directory;
  const std::string script =
      directory.write("script", run_winnow({"completions", "bash"}).out + "COMP_WORDS=(" + words +
                                    ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_winnow\n"
                                    "echo \"${COMPREPLY[@]}\"\n");
  return shell("bash --norc " + script);
}

TEST(Completions, BashOffersCommandsAndFlags) {
  EXPECT_EQ(offered("winnow gen"), "generate\n");
  EXPECT_EQ(offered("winnow generate --max"), "--max-tokens\n");
  EXPECT_EQ(offered("winnow eval need"), "needle\n");
  EXPECT_EQ(offered("winnow eval needle --lengths 4096 --leng"), "--lengths\n");
  EXPECT_EQ(offered("winnow generate --model ''"), "\n") << "files come by default";
  EXPECT_THAT(offered("winnow ''"), Not(HasSubstr("man-pages")));
}

TEST(Completions, OtherShellsReadTheirs) {
  const TempDirectory directory;
  for (const std::string name : {"zsh", "fish"}) {
    const CommandResult result = run_winnow({"completions", name});
    EXPECT_EQ(result.code, 0);
    EXPECT_THAT(result.out, HasSubstr("max-tokens"));
    const std::string file = directory.write(name, result.out);
    EXPECT_EQ(shell("command -v " + name + " >/dev/null || exit 0; " + name + " -n " + file), "");
  }
  EXPECT_THAT(run_winnow({"completions", "csh"}).err, HasSubstr("expected bash, zsh or fish"));
}

TEST(ManPages, EveryCommandHasOne) {
  const TempDirectory directory;
  ASSERT_EQ(run_winnow({"man-pages", directory.path().string()}).code, 0);
  EXPECT_THAT(read_text(directory.file("winnow.1")), HasSubstr("\\fBwinnow\\-eval\\fR(1)"));
  EXPECT_THAT(read_text(directory.file("winnow-eval.1")), HasSubstr("winnow\\-eval\\-needle"));
  const std::string page = read_text(directory.file("winnow-generate.1"));
  EXPECT_THAT(page, HasSubstr(".TH WINNOW\\-GENERATE 1"));
  EXPECT_THAT(page,
              HasSubstr("\\fB\\-\\-max\\-tokens\\fR \\fIN\\fR\nMost new tokens (default: 128)"));
  EXPECT_THAT(page, HasSubstr(".SH SAMPLING"));
  // If man is installed, it has no warnings.
  EXPECT_EQ(shell("command -v man >/dev/null || exit 0; man --warnings -l " +
                  directory.file("winnow-generate.1") + " >/dev/null"),
            "");
}

}  // namespace
}  // namespace winnow::testing
