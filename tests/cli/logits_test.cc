// winnow logits against the reference fixtures: the whole path from flags to file.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/run_command.h"
#include "model/fixture.h"

namespace winnow::testing {
namespace {

using Words = std::vector<std::string>;

void expect_reference(const std::string& model, const std::string& reference, const Words& more) {
  const TempDirectory directory;
  const Expected expected(fixture_models() / model / reference);
  Words words{"logits",
              "--model",
              (fixture_models() / model).string(),
              "--tokens",
              fmt::format("{}", fmt::join(expected.tokens(), ",")),
              "--output",
              directory.file("logits.safetensors"),
              "--dtype",
              "fp32",
              "--kv-dtype",
              "fp32",
              "--threads",
              "1"};
  words.insert(words.end(), more.begin(), more.end());
  const CommandResult result = run_winnow(words);
  ASSERT_EQ(result.code, 0) << result.err;

  const Expected actual(directory.path() / "logits.safetensors");
  EXPECT_LE(largest_difference(actual.logits(), expected.logits()), 1e-3F) << model;
  EXPECT_TRUE(std::ranges::equal(actual.live_entries(), expected.live_entries())) << model;
}

class Logits : public ::testing::TestWithParam<std::string> {};

TEST_P(Logits, AgreeWithTheReferenceHoweverTheyAreFed) {
  for (const Words& how : {Words{}, Words{"--chunk", "7"}, Words{"--decode"},
                           Words{"--chunk", "11", "--deterministic"}}) {
    expect_reference(GetParam(), "expected.safetensors", how);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Logits,
                         ::testing::Values("llama", "llama-fp16-sharded", "qwen2", "qwen3",
                                           "mistral", "dms-own", "dms-nvidia-llama",
                                           "dms-shisa-nested", "dms-nvidia-qwen3-adapter",
                                           "dms-disabled", "dmc-llama", "dmc-qwen3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

class LogitsOfRule : public ::testing::TestWithParam<std::string> {};

TEST_P(LogitsOfRule, AgreeWithTheReference) {
  const std::string& rule = GetParam();
  // Budgets of the references: 24 entries; for Quest 32 and a dense prompt of 24.
  Words words{"--cache", rule, "--cr", "2", "--total-tokens", rule == "quest" ? "64" : "48"};
  if (rule == "quest") {
    words.insert(words.end(), {"--prompt-tokens", "24"});
  }
  const std::string reference = "expected." + rule + ".safetensors";
  for (const Words& how : {Words{}, Words{"--chunk", "7"}, Words{"--decode"}}) {
    Words all = words;
    all.insert(all.end(), how.begin(), how.end());
    expect_reference("llama-untied", reference, all);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, LogitsOfRule,
                         ::testing::Values("streaming", "tova", "h2o", "quest"),
                         [](const auto& info) { return info.param; });

TEST(LogitsInput, TokensMayComeFromAFileOrStandardInput) {
  const TempDirectory directory;
  const auto logits = [&](const Words& input, const std::string& text) {
    Words words{"logits", "--model", (fixture_models() / "llama").string(), "--output",
                directory.file("l.safetensors")};
    words.insert(words.end(), input.begin(), input.end());
    EXPECT_EQ(run_winnow(words, text).code, 0);
    return read_text(directory.file("l.safetensors"));
  };
  const std::string expected = logits({"--tokens", "1,2,3"}, "");
  EXPECT_FALSE(expected.empty());
  EXPECT_EQ(logits({"--tokens-file", directory.write("ids", "1,2,3\n")}, ""), expected);
  EXPECT_EQ(logits({"--tokens-file", "-"}, "1,2,3"), expected);
}

}  // namespace
}  // namespace winnow::testing
