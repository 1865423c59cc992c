// winnow generate --prompt-cache: the same answer, but faster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/run_command.h"
#include "cli/terminal.h"
#include "kvcache/every_rule.h"

namespace winnow::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

// Longer than the window, so that some tokens are evicted.
std::string long_text() {
  std::string text;
  for (int i = 0; i < 12; ++i) {
    text += "The quick brown fox number " + std::to_string(i) + " jumps over the lazy dog. ";
  }
  return text;
}

class PromptCache : public ::testing::Test {
 protected:
  [[nodiscard]] CommandResult run(const std::string& prompt, const Words& more = {},
                                  const std::string& model = "assets/dms-cr8") const {
    Words words{"generate", "--model",   model, "--prompt",     prompt,   "--max-tokens",
                "8",        "--threads", "1",   "--ignore-eos", "--json", "--deterministic"};
    words.insert(words.end(), more.begin(), more.end());
    return run_winnow(words);
  }
  json generate(const std::string& prompt, const Words& more = {},
                const std::string& model = "assets/dms-cr8") const {
    const CommandResult result = run(prompt, more, model);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("warning")));
    return json::parse(result.out);
  }
  [[nodiscard]] Words cached(const Words& more = {}) const {
    Words words{"--prompt-cache", file_};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  /// The run's answer is correct, and its warning contains `why`.
  void expect_refused(const std::string& why, const Words& more = {},
                      const std::string& model = "assets/dms-cr8") const {
    const CommandResult result = run(long_text(), cached(more), model);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("winnow: warning: --prompt-cache " + file_));
    EXPECT_THAT(result.err, HasSubstr(why));
    const json answer = json::parse(result.out);
    EXPECT_EQ(answer.at("reused_tokens"), 0);
    EXPECT_EQ(answer.at("token_ids"), generate(long_text(), more, model).at("token_ids"));
  }

  TempDirectory directory_;
  std::string file_ = directory_.file("prompt.state");
};

TEST_F(PromptCache, ASecondRunComputesOneTokenOfThePrompt) {
  const json expected = generate(long_text());
  const json first = generate(long_text(), cached());
  EXPECT_EQ(first.at("reused_tokens"), 0);
  const int prompt = first.at("prompt_tokens");
  const json second = generate(long_text(), cached());
  EXPECT_EQ(second.at("reused_tokens"), prompt - 1);
  for (const json& run : {first, second}) {
    EXPECT_EQ(run.at("token_ids"), expected.at("token_ids"));
    EXPECT_EQ(run.at("kv").at("per_layer_head"), expected.at("kv").at("per_layer_head"));
  }
  const json samples = generate(long_text(), cached({"--n", "3", "--temperature", "1"}));
  EXPECT_EQ(samples.at("samples"),
            generate(long_text(), {"--n", "3", "--temperature", "1"}).at("samples"));
}

TEST_F(PromptCache, GrowsWithThePrompt) {
  const json first = generate(long_text(), cached());
  const std::string longer = long_text() + " And then the dog looked at the fox.";
  const json second = generate(longer, cached());
  EXPECT_EQ(second.at("reused_tokens"), first.at("prompt_tokens").get<int>() - 1);
  EXPECT_EQ(second.at("token_ids"), generate(longer).at("token_ids"));
  const json third = generate(longer, cached());
  EXPECT_EQ(third.at("reused_tokens"), third.at("prompt_tokens").get<int>() - 1);
}

TEST_F(PromptCache, ReadOnlyItStaysAsItIs) {
  generate(long_text(), cached());
  const std::string before = read_text(file_);
  for (const std::string question : {" What did the fox do?", " Who was lazy?"}) {
    const json answer = generate(long_text() + question, cached({"--prompt-cache-ro"}));
    EXPECT_GT(answer.at("reused_tokens"), 100);
    EXPECT_EQ(answer.at("token_ids"), generate(long_text() + question).at("token_ids"));
  }
  EXPECT_EQ(read_text(file_), before);
  fs::remove(file_);
  const CommandResult missing = run(long_text(), cached({"--prompt-cache-ro"}));
  EXPECT_EQ(missing.code, 0);
  EXPECT_THAT(missing.err, HasSubstr("winnow: warning: --prompt-cache " + file_ +
                                     ": there is no such file: the prompt is computed"));
  EXPECT_FALSE(fs::exists(file_));
  const CommandResult alone = run(long_text(), {"--prompt-cache-ro"});
  EXPECT_NE(alone.code, 0);
  EXPECT_THAT(alone.err, HasSubstr("--prompt-cache-ro goes with --prompt-cache only"));
}

TEST_F(PromptCache, SaysWhatWasReused) {
  generate(long_text(), cached());
  const CommandResult result =
      run_winnow({"generate", "--model", "assets/dms-cr8", "--prompt", long_text(), "--max-tokens",
                  "2", "--threads", "1", "--deterministic", "--prompt-cache", file_});
  EXPECT_THAT(result.err, HasSubstr("prompt tokens from --prompt-cache"));
}

TEST_F(PromptCache, IsSeveralTimesSmallerThanADenseOne) {
  std::string text;
  for (int i = 0; i < 6; ++i) {
    text += long_text();
  }
  generate(text, cached());
  const auto compressed = fs::file_size(file_);
  fs::remove(file_);
  generate(text, cached({"--cache", "dense"}));
  EXPECT_GT(static_cast<double>(fs::file_size(file_)), 3.0 * static_cast<double>(compressed));
}

TEST_F(PromptCache, ItsWarningBeginsALine) {
  std::ofstream(file_) << "not a state";
  Terminal terminal({"generate", "--model", "assets/dms-cr8", "--prompt", "The sea was",
                     "--max-tokens", "8", "--threads", "1", "--ignore-eos", "--prompt-cache",
                     file_});
  EXPECT_EQ(terminal.wait(), 0);
  EXPECT_THAT(terminal.transcript(), HasSubstr("\nwinnow: warning: --prompt-cache "));
  EXPECT_THAT(terminal.transcript(), Not(HasSubstr("\n\r\n"))) << "no empty line";
}

// A dense cache can be cut where the prompts differ, others cannot.
TEST_F(PromptCache, WherePromptsPart) {
  const std::string other = long_text().substr(0, 300) + "but nobody saw it.";
  generate(long_text(), cached({"--cache", "dense"}));
  const json dense = generate(other, cached({"--cache", "dense"}));
  EXPECT_GT(dense.at("reused_tokens"), 50);
  EXPECT_EQ(dense.at("token_ids"), generate(other, {"--cache", "dense"}).at("token_ids"));
  generate("Something else", cached({"--cache", "dense"}));
  fs::remove(file_);
  generate(other, cached());
  expect_refused("under dms they cannot be parted");
  EXPECT_GT(generate(long_text(), cached()).at("reused_tokens"), 0);  // it was rewritten
}

TEST_F(PromptCache, UnderEveryRule) {
  for (const std::string& rule : every_baseline_name()) {
    fs::remove(file_);
    const Words words{"--cache", rule, "--cr", "3"};
    const json expected = generate(long_text(), words, "assets/base");
    generate(long_text(), cached(words), "assets/base");
    const json again = generate(long_text(), cached(words), "assets/base");
    EXPECT_EQ(again.at("reused_tokens"), again.at("prompt_tokens").get<int>() - 1) << rule;
    EXPECT_EQ(again.at("token_ids"), expected.at("token_ids")) << rule;
    EXPECT_EQ(again.at("kv"), expected.at("kv")) << rule;
  }
  expect_refused("was saved for budget", {"--cache", "quest", "--cr", "4"}, "assets/base");
}

TEST_F(PromptCache, OthersFilesAreRefused) {
  generate(long_text(), cached());
  expect_refused("was saved for ", {"--cache", "dense"}, "assets/base");
  EXPECT_GT(generate(long_text(), cached({"--cache", "dense"}), "assets/base").at("reused_tokens"),
            0);
  fs::remove(file_);
  generate(long_text(), cached());
  expect_refused("was saved for cache \"dms\", this run has \"dense\"", {"--cache", "dense"});
  fs::remove(file_);
  generate(long_text(), cached());
  expect_refused("was saved for window \"64\", this run has \"32\"", {"--window", "32"});
  fs::remove(file_);
  generate(long_text(), cached());
  expect_refused("was saved for kv dtype \"bf16\", this run has \"int8\"", {"--kv-dtype", "int8"});
  fs::remove(file_);
  generate(long_text(), cached());
  expect_refused("was saved for weights \"as stored\", this run has \"int8\"",
                 {"--weights", "int8"});
}

TEST_F(PromptCache, DamagedFilesAreRefused) {
  generate(long_text(), cached());
  const std::string whole = read_text(file_);
  const auto put = [&](const std::string& bytes) {
    std::ofstream(file_, std::ios::binary | std::ios::trunc) << bytes;
  };
  std::string flipped = whole;
  flipped[flipped.size() - 5000] = static_cast<char>(flipped[flipped.size() - 5000] ^ 4);
  put(flipped);
  expect_refused("is damaged: its checksum does not match");
  EXPECT_EQ(read_text(file_), whole);  // rewritten, with the same content
  put(whole.substr(0, whole.size() / 2));
  expect_refused("reach beyond");
  EXPECT_EQ(read_text(file_), whole);
  put("");
  expect_refused("truncated");
  EXPECT_EQ(read_text(file_), whole);
}

TEST_F(PromptCache, WhatIsNoStateIsLeftAsItIs) {
  const std::string weights =
      read_text(fs::path(WINNOW_SOURCE_DIR) / "tests/fixtures/models/llama/model.safetensors");
  for (const std::string& foreign : {long_text(), weights, std::string("x")}) {
    static_cast<void>(directory_.write("prompt.state", foreign));
    expect_refused("is computed, the file is left as it is");
    EXPECT_EQ(read_text(file_), foreign);
  }
}

TEST_F(PromptCache, AFileThatCannotBeWrittenIsAWarning) {
  file_ = directory_.file("no/such/folder/prompt.state");
  const CommandResult result = run(long_text(), cached());
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("winnow: warning: --prompt-cache " + file_));
  EXPECT_THAT(result.err, HasSubstr("there is no folder"));
  EXPECT_EQ(json::parse(result.out).at("token_ids"), generate(long_text()).at("token_ids"));
}

}  // namespace
}  // namespace winnow::testing
