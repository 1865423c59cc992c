// Commands replace what they wrote before, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/run_command.h"
#include "cli/terminal.h"

namespace winnow::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Words = std::vector<std::string>;

constexpr const char* kForeign = "{\"precious\": true}\n";

class OutputFiles : public ::testing::Test {
 protected:
  [[nodiscard]] std::string file(const std::string& name) const { return directory_.file(name); }

  // Runs a command that writes `name`, last of `words`: not over another file, but over what it
  // wrote before.
  void expect_own_kind_only(Words words, const std::string& name, const std::string& kind) const {
    words.push_back(directory_.write(name, kForeign));
    const CommandResult refused = run_winnow(words);
    EXPECT_EQ(refused.code, 1) << words[0];
    EXPECT_EQ(refused.err, "winnow: error: " + file(name) + ": holds something other than " + kind +
                               ": name another file\n");
    EXPECT_EQ(read_text(file(name)), kForeign);
    for (const std::string before : {"nothing", "an empty file", "its own"}) {
      if (before == "nothing") {
        std::filesystem::remove(file(name));
      } else if (before == "an empty file") {
        static_cast<void>(directory_.write(name, ""));
      }
      const CommandResult result = run_winnow(words);
      EXPECT_EQ(result.code, 0) << before << ": " << result.err;
      EXPECT_GT(std::filesystem::file_size(file(name)), 0U);
    }
    words.back() = "/dev/null";
    EXPECT_EQ(run_winnow(words).code, 0);
  }

  TempDirectory directory_;
};

TEST_F(OutputFiles, OfLogits) {
  expect_own_kind_only({"logits", "--model", kBase, "--tokens", "1,2,3", "--output"}, "l",
                       "logits of winnow");
}

TEST_F(OutputFiles, OfLogitsAreNoModel) {
  const std::string model = file("model.safetensors");
  std::filesystem::copy_file(std::filesystem::path(WINNOW_SOURCE_DIR) / kBase / "model.safetensors",
                             model);
  const std::string before = read_text(model);
  for (const Words& words :
       {Words{"logits", "--model", kBase, "--tokens", "1,2", "--output", model},
        Words{"calibrate", "--model", kBase, "--text", "README.md", "--max-tokens", "9", "--output",
              model},
        Words{"eval", "divergence", "--model", kBase, "--text", "README.md", "--prompts", "1",
              "--context", "9", "--steps", "2", "--save-logits", model}}) {
    const CommandResult result = run_winnow(words);
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr(model + ": holds something other than"));
    EXPECT_TRUE(read_text(model) == before);
  }
}

TEST_F(OutputFiles, OfCalibrations) {
  expect_own_kind_only(
      {"calibrate", "--model", kBase, "--text", "README.md", "--max-tokens", "20", "--output"}, "c",
      "a calibration");
}

TEST_F(OutputFiles, OfSavedLogits) {
  expect_own_kind_only({"eval", "divergence", "--model", kBase, "--text", "README.md", "--prompts",
                        "1", "--context", "20", "--steps", "2", "--save-logits"},
                       "s", "logits of `winnow eval`");
}

TEST_F(OutputFiles, OfPages) {
  expect_own_kind_only({"eval", "profile", "--model", kRetrofitted, "--text", "README.md",
                        "--context", "20", "--html"},
                       "p.html", "a page of winnow");
  expect_own_kind_only({"eval", "latency", "--shape", "llama-3.1-8b", "--html"}, "l.html",
                       "a page of winnow");
}

TEST_F(OutputFiles, OfReports) {
  const Words perplexity{"eval",      "perplexity", "--model", kBase,   "--text",
                         "README.md", "--context",  "32",      "--out", file("perplexity.json")};
  const CommandResult result = run_winnow(perplexity);
  ASSERT_EQ(result.code, 0) << result.err;
  expect_own_kind_only({"report", directory_.path().string(), "--html"}, "r.html",
                       "a page of winnow");
  expect_own_kind_only({"report", directory_.path().string(), "--markdown"}, "r.md",
                       "a report of winnow");
}

TEST_F(OutputFiles, OfResultsAreNoFolder) {
  std::filesystem::create_directory(file("r.json"));
  const CommandResult result =
      run_winnow({"eval", "perplexity", "--model", kBase, "--text", "README.md", "--context", "32",
                  "--out", file("r.json")});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr(file("r.json") + ": cannot write: is a directory"));
}

TEST_F(OutputFiles, OfTokensAreNotThoseOfOtherDataNorAModel) {
  const auto tokenize = [&](const std::string& data, const std::string& out) {
    return run_winnow({"tokenize-data", "--model", kBase, "--data", data, "--out", out});
  };
  const std::string one = directory_.write("one.jsonl", "{\"text\": \"one text\"}\n");
  const std::string two = directory_.write("two.jsonl", "{\"text\": \"another text\"}\n");
  const std::string out = file("tokens");
  ASSERT_EQ(tokenize(one, out).code, 0);
  EXPECT_EQ(tokenize(one, out).code, 0);
  const std::string before = read_text(out + "/manifest.json");
  const CommandResult other = tokenize(two, out);
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr(out + ": holds tokens of other data"));
  EXPECT_EQ(read_text(out + "/manifest.json"), before);
  std::filesystem::remove(out + "/manifest.json");  // as a run that was killed
  EXPECT_EQ(tokenize(two, out).code, 0);
  const std::string model = file("model");
  std::filesystem::create_directory(model);
  static_cast<void>(directory_.write("model/config.json", "{}"));
  const CommandResult folder = tokenize(one, model);
  EXPECT_EQ(folder.code, 1);
  EXPECT_THAT(
      folder.err,
      HasSubstr(model + ": holds something other than tokenised data: name another folder"));
  EXPECT_FALSE(std::filesystem::exists(model + "/manifest.json"));
}

class OutputFilesOfChats : public OutputFiles {
 protected:
  static Words chat(const std::string& history) {
    return {"chat",         "--model", kRetrofitted, "--threads", "1",
            "--max-tokens", "2",       "--history",  history};
  }
};

TEST_F(OutputFilesOfChats, AreConversations) {
  const std::string other = directory_.write("other.json", kForeign);
  const std::string own = file("own.json");
  const CommandResult result =
      run_winnow(chat("none"), "Hi\n/save " + other + "\n/save " + own + "\n/save " + own + "\n");
  EXPECT_THAT(result.err,
              HasSubstr(other + ": holds something other than a conversation: name another file"));
  EXPECT_EQ(read_text(other), kForeign);
  EXPECT_EQ(json::parse(read_text(own)).at("messages").size(), 2U);
  EXPECT_THAT(result.err, Not(HasSubstr(own + ": holds")));
}

TEST_F(OutputFilesOfChats, AreHistories) {
  const std::string other = directory_.write("other", kForeign);
  Terminal refused(chat(other));
  EXPECT_TRUE(refused.await(
      other + ": holds something other than the history of a chat: name another file"));
  EXPECT_EQ(refused.wait(), 1);
  EXPECT_EQ(read_text(other), kForeign);
  for (int i = 0; i < 2; ++i) {  // a new one, and its own
    Terminal taken(chat(file("own")));
    ASSERT_TRUE(taken.await("> ")) << taken.transcript();
    taken.type("/quit\r");
    EXPECT_EQ(taken.wait(), 0);
    EXPECT_THAT(read_text(file("own")), HasSubstr("/quit"));
  }
}

TEST_F(OutputFilesOfChats, SaysOnceThatAHistoryCannotBeWritten) {
  Terminal chat_without(chat("/proc/winnow-history"));
  const std::string warning =
      "winnow: warning: /proc/winnow-history: the history of this chat is not kept";
  ASSERT_TRUE(chat_without.await("> ")) << chat_without.transcript();
  chat_without.type("/set\r");
  EXPECT_TRUE(chat_without.await(warning)) << chat_without.transcript();
  ASSERT_TRUE(chat_without.await("> ")) << chat_without.transcript();
  chat_without.type("/quit\r");
  EXPECT_EQ(chat_without.wait(), 0);
  const std::string& all = chat_without.transcript();
  EXPECT_EQ(all.find(warning), all.rfind(warning));
}

}  // namespace
}  // namespace winnow::testing
