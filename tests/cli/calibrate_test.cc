// winnow calibrate, and the rule that needs its output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/run_command.h"

namespace winnow::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class Calibrate : public ::testing::Test {
 protected:
  [[nodiscard]] static CommandResult calibrate(const std::string& text, const std::string& output,
                                               const std::string& tokens) {
    return run_winnow({"calibrate", "--model", kBase, "--text", text, "--output", output,
                       "--max-tokens", tokens, "--threads", "1"});
  }
  [[nodiscard]] static CommandResult generate(const std::vector<std::string>& more) {
    std::string prompt;
    for (int i = 0; i < 12; ++i) {
      prompt += "The quick brown fox number " + std::to_string(i) + " jumps over the lazy dog. ";
    }
    std::vector<std::string> words{"generate", "--model",      kBase,    "--prompt",
                                   prompt,     "--max-tokens", "8",      "--threads",
                                   "1",        "--ignore-eos", "--json", "--deterministic"};
    words.insert(words.end(), more.begin(), more.end());
    return run_winnow(words);
  }

  TempDirectory directory_;
  std::string file_ = directory_.file("calibration.safetensors");
};

TEST_F(Calibrate, MakesWhatTriAttentionNeeds) {
  const CommandResult made = calibrate("README.md", file_, "300");
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr(file_ + ": statistics of 300 tokens"));
  const std::string first = read_text(file_);
  const std::vector<std::string> rule{"--cache", "triattention",  "--cr",
                                      "4",       "--calibration", file_};
  const CommandResult whole = generate(rule);
  ASSERT_EQ(whole.code, 0) << whole.err;
  const json answer = json::parse(whole.out);
  EXPECT_GE(answer.at("kv").at("compression_ratio"), 4.0);
  EXPECT_LE(answer.at("kv").at("compression_ratio"), 6.0);
  auto cut = rule;
  cut.insert(cut.end(), {"--chunk", "5"});
  const json again = json::parse(generate(cut).out);
  EXPECT_EQ(again.at("token_ids"), answer.at("token_ids"));
  EXPECT_EQ(again.at("kv"), answer.at("kv"));
  // Another text gives another calibration, which makes a prompt's saved cache unusable.
  auto saved = rule;
  saved.insert(saved.end(), {"--prompt-cache", directory_.file("state")});
  ASSERT_EQ(generate(saved).code, 0);
  EXPECT_GT(json::parse(generate(saved).out).at("reused_tokens"), 0);
  ASSERT_EQ(calibrate("README.md", file_, "200").code, 0);
  EXPECT_NE(read_text(file_), first);
  const CommandResult other = generate(saved);
  EXPECT_EQ(json::parse(other.out).at("reused_tokens"), 0);
  EXPECT_THAT(other.err, HasSubstr("was saved for"));
}

TEST_F(Calibrate, ErrorsNameWhatIsWrong) {
  const auto error_of = [](const CommandResult& result) {
    EXPECT_NE(result.code, 0);
    return result.err;
  };
  EXPECT_THAT(error_of(calibrate("README.md", file_, "0")), HasSubstr("--max-tokens 0: expected"));
  const std::string empty = directory_.write("empty", "");
  EXPECT_THAT(error_of(calibrate(empty, file_, "9")), HasSubstr(empty + ": is empty"));
  const std::string packed = directory_.write("packed.zst", "\x28\xB5\x2F\xFD text");
  EXPECT_THAT(error_of(calibrate(packed, file_, "9")),
              HasSubstr(packed + ": is no text in UTF-8: it is compressed"));
  const std::string cut = directory_.write("cut", std::string(400, 'a') + "\xE2\x82");
  EXPECT_EQ(calibrate(cut, directory_.file("of_cut"), "9").code, 0);
  const std::string lines = directory_.write("lines.jsonl", "{\"text\": \"a\"}\n");
  EXPECT_THAT(error_of(calibrate(lines, file_, "9")), HasSubstr("found lines of JSON"));
  const std::string nowhere = directory_.file("no/where");
  EXPECT_THAT(error_of(calibrate("README.md", nowhere, "9")), HasSubstr(nowhere));
  EXPECT_THAT(error_of(generate({"--cache", "triattention", "--cr", "4"})),
              HasSubstr("--cache triattention needs --calibration FILE; winnow calibrate"));
  const std::string text = directory_.write("text.safetensors", "no tensors");
  EXPECT_THAT(error_of(generate({"--cache", "triattention", "--cr", "4", "--calibration", text})),
              HasSubstr(text));
}

}  // namespace
}  // namespace winnow::testing
