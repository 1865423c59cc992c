// Messages for users who type other programs' flags.
#include "apps/winnow/foreign_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "cli/run_command.h"

namespace winnow::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

void expect_hint(const std::vector<std::string>& words, const std::string& hint) {
  const CommandResult result = run_winnow(words);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr(hint));
}

TEST(ForeignFlags, AreNamedInWinnowsWords) {
  expect_hint({"serve", "--model", kBase, "--served-model-name", "x"},
              "winnow serve has no flag --served-model-name (vLLM's --served-model-name is "
              "--model-name or --model-alias here; see winnow serve --help)");
  expect_hint({"serve", "--model", kBase, "--max-model-len=4096"},
              "(vLLM's --max-model-len is --max-context here; see");
  expect_hint({"serve", "--model", kBase, "--enable-prefix-caching"},
              "(vLLM's --enable-prefix-caching is the default; --no-prefix-cache turns it off; ");
  expect_hint({"serve", "--model", kBase, "--trust-remote-code"},
              "(vLLM's --trust-remote-code is not needed: winnow runs no code of a model; drop it; "
              "see winnow serve --help)");
  expect_hint({"serve", "--model", kBase, "--revision", "main"},
              "(vLLM's --revision is --model NAME@REVISION here; see");
  expect_hint({"serve", "--model", kBase, "--pipeline-parallel-size", "2"},
              "is not supported: --tensor-parallel splits a model; see");
  expect_hint({"serve", "-hf", "some-org/some-model"}, "llama.cpp's -hf is --model here");
  expect_hint({"chat", "--model", kBase, "--temp", "1"},
              "llama.cpp's --temp is --temperature here");
  expect_hint({"serve", "--model", kBase, "-ngl", "99"},
              "has no flag -ngl (llama.cpp's -ngl is --device cuda here; see");
  expect_hint({"chat", "--model", kBase, "-c", "4096"},
              "(llama.cpp's -c is --max-context of winnow serve; see winnow chat --help)");
}

TEST(ForeignCommands, AreNamedInWinnowsWords) {
  expect_hint({"run", "llama3"},
              "winnow has no command run (Ollama's run is winnow chat --model ORG/NAME; see winnow "
              "--help)");
  expect_hint({"create", "x", "-f", "Modelfile"}, "(Ollama's create is not needed: winnow chat");
  expect_hint({"ls"}, "(Ollama's ls is hf cache ls, of huggingface_hub; see");
  expect_hint({"eval", "run"}, "winnow eval has no command run (see winnow eval --help)");
  expect_hint({"pull", "qwen3:0.6b"}, "qwen3:0.6b: expected org/name (Qwen/Qwen3-0.6B), ");
}

TEST(ForeignCommands, HelpAndVersionAreFlagsHere) {
  EXPECT_EQ(run_winnow({"version"}).out, run_winnow({"--version"}).out);
  EXPECT_EQ(run_winnow({"help"}).out, run_winnow({"--help"}).out);
  EXPECT_EQ(run_winnow({"help", "eval", "suite"}).out, run_winnow({"eval", "suite", "--help"}).out);
  EXPECT_EQ(run_winnow({"help"}).code, 0);
}

// Rows of the table under a heading of a page: the other program's cell, and winnow's.
std::vector<std::pair<std::string, std::string>> rows_under(const std::string& page,
                                                            const std::string& heading) {
  std::ifstream file(std::string(WINNOW_SOURCE_DIR) + "/docs/" + page);
  std::vector<std::pair<std::string, std::string>> rows;
  std::string line;
  while (std::getline(file, line) && line != heading) {
  }
  while (std::getline(file, line) && !line.starts_with('#')) {
    const std::size_t middle = line.find(" | ");
    if (line.starts_with("| ") && middle != std::string::npos) {
      rows.emplace_back(line.substr(0, middle), line.substr(middle));
    }
  }
  return rows;
}

TEST(ForeignFlags, AreThoseOfThePages) {
  std::vector<std::string> told;
  for (const auto& [page, heading] : {std::pair("serving.md", "### Coming from vLLM"),
                                      std::pair("serving.md", "### Coming from SGLang"),
                                      std::pair("usage.md", "### Coming from llama.cpp")}) {
    for (const auto& [theirs, ours] : rows_under(page, heading)) {
      const std::regex flag("[ `](--?[a-z][a-z-]*)");
      for (auto it = std::sregex_iterator(theirs.begin(), theirs.end(), flag);
           it != std::sregex_iterator(); ++it) {
        const std::string name = (*it)[1];
        const auto* const known =
            std::ranges::find(cli::kForeignFlags, name, &cli::ForeignFlag::flag);
        if (known == cli::kForeignFlags.end()) {
          EXPECT_THAT(ours, HasSubstr(name)) << page << " names a flag that gets no hint";
        } else {
          told.push_back(name);
          EXPECT_THAT(ours, HasSubstr(std::string(known->here))) << name;
        }
      }
    }
  }
  for (const cli::ForeignFlag& known : cli::kForeignFlags) {
    EXPECT_THAT(told, Contains(std::string(known.flag)));
  }
}

}  // namespace
}  // namespace winnow::testing
