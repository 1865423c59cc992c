// winnow train-probe, and the model with the probe that it made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/run_command.h"

namespace winnow::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

class TrainProbe : public ::testing::Test {
 protected:
  TrainProbe() {
    const std::string text = read_text(std::string(WINNOW_SOURCE_DIR) + "/README.md");
    std::string lines;
    for (std::size_t first = 0; first + 2000 <= text.size() && first < 8000; first += 2000) {
      lines += json{{"text", text.substr(first, 2000)}}.dump(-1, ' ', true,
                                                             json::error_handler_t::replace) +
               "\n";
    }
    data_ = directory_.write("data.jsonl", lines);
  }

  [[nodiscard]] CommandResult train(const std::string& out, const Words& more = {}) const {
    Words words{"train-probe", "--model", kBase, "--data", data_, "--out", out, "--threads", "1"};
    for (const Words& own : {Words{"--length", "40"}, Words{"--max-tokens", "400"}}) {
      if (std::ranges::find(more, own[0]) == more.end()) {
        words.insert(words.end(), own.begin(), own.end());
      }
    }
    words.insert(words.end(), more.begin(), more.end());
    return run_winnow(words);
  }
  [[nodiscard]] static json perplexity(const Words& more) {
    Words words{"eval",         "perplexity", "--text",    "README.md", "--context", "256",
                "--max-tokens", "255",        "--threads", "1",         "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const CommandResult result = run_winnow(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.code == 0 ? json::parse(result.out) : json();
  }
  // The threshold that the command names for one entry in `ratio`.
  static std::string threshold(const std::string& report, const std::string& ratio) {
    const std::size_t line = report.find("1 entry in " + ratio);
    const std::string flag = "--probe-threshold ";
    const std::size_t at = report.find(flag, line) + flag.size();
    return report.substr(at, report.find('\n', at) - at);
  }

  TempDirectory directory_;
  std::string data_;
};

TEST_F(TrainProbe, MakesAProbeThatModelsRunWith) {
  const std::string out = directory_.file("probe");
  const CommandResult made = train(out);
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, AllOf(HasSubstr("a probe trained on 360 tokens; on 40 held-out tokens"),
                              HasSubstr("--probe " + out + " --probe-threshold")));
  const json config = json::parse(read_text(out + "/config.json"));
  EXPECT_EQ(config.at("model_type"), "kvzap");
  EXPECT_EQ(config.at("n_modules"), 8);
  const auto ratio_at = [&](const std::string& of) {
    const json result =
        perplexity({"--model", kBase, "--reference", kBase, "--probe", out, "--window", "16",
                    "--probe-threshold", threshold(made.out, of)});
    EXPECT_GT(result.value("kld", 0.0), 0.0);
    return result.value("compression_ratio", 0.0);
  };
  const double two = ratio_at("2 ");
  const double eight = ratio_at("8 ");
  EXPECT_GT(two, 1.3);
  EXPECT_LT(two, 3.0);
  EXPECT_GT(eight, two + 0.5);
}

TEST_F(TrainProbe, AProbeHasTheThresholdOfItsTarget) {
  const std::string out = directory_.file("probe");
  const auto ratio = [&](const Words& more) {
    Words words{"--model", kBase, "--probe", out, "--window", "16"};
    words.insert(words.end(), more.begin(), more.end());
    return perplexity(words).value("compression_ratio", 0.0);
  };
  const auto own = [&] { return json::parse(read_text(out + "/config.json")).at("threshold"); };
  const CommandResult four = train(out);
  ASSERT_EQ(four.code, 0) << four.err;
  EXPECT_THAT(four.out, HasSubstr("--probe " + out + " alone, is that of --target-cr 4: " +
                                  threshold(four.out, "4 ") + "\n"));
  EXPECT_EQ(own(), std::stod(threshold(four.out, "4 ")));
  const double by_default = ratio({});
  EXPECT_EQ(by_default, ratio({"--probe-threshold", threshold(four.out, "4 ")}));
  EXPECT_LT(ratio({"--probe-threshold", threshold(four.out, "2 ")}), by_default);
  const CommandResult two = train(out, {"--target-cr", "2"});
  ASSERT_EQ(two.code, 0) << two.err;
  EXPECT_EQ(own(), std::stod(threshold(two.out, "2 ")));
  EXPECT_LT(ratio({}), by_default);
}

TEST_F(TrainProbe, SameFlagsMakeTheSameProbe) {
  const std::string out = directory_.file("probe");
  ASSERT_EQ(train(out).code, 0);
  const std::string first = read_text(out + "/model.safetensors");
  const CommandResult again = train(out);
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(read_text(out + "/model.safetensors"), first);
  ASSERT_EQ(train(out, {"--seed", "2"}).code, 0);
  EXPECT_NE(read_text(out + "/model.safetensors"), first);
}

TEST_F(TrainProbe, ErrorsNameWhatIsWrong) {
  const std::string out = directory_.file("probe");
  const auto error_with = [&](const Words& more) {
    const CommandResult result = train(out, more);
    EXPECT_EQ(result.code, 1) << result.out;
    return result.err;
  };
  EXPECT_THAT(error_with({"--ridge", "0"}), HasSubstr("--ridge 0: expected more than 0"));
  EXPECT_THAT(error_with({"--target-cr", "0.5"}), HasSubstr("--target-cr 0.5: expected 1 to 1000"));
  EXPECT_THAT(error_with({"--length", "1"}), HasSubstr("--length 1: expected 2 or more"));
  EXPECT_THAT(error_with({"--max-tokens", "50"}),
              HasSubstr("--max-tokens 50: expected at least two texts of --length 40"));
  EXPECT_THAT(error_with({"--length", "3000", "--max-tokens", "90000"}),
              HasSubstr("the model has 4096 positions"));
  EXPECT_THAT(error_with({"--length", "2000", "--max-tokens", "90000"}),
              HasSubstr("--data: its documents have 0 texts of 2000 tokens"));
  const CommandResult decides =
      run_winnow({"train-probe", "--model", kRetrofitted, "--data", data_, "--out", out});
  EXPECT_EQ(decides.code, 1);
  EXPECT_THAT(decides.err, HasSubstr("it decides by itself; a probe goes with a plain model"));
  static_cast<void>(directory_.write("precious", "text"));
  const std::string foreign = directory_.path().string();
  const CommandResult refused = train(foreign);
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err,
              HasSubstr(foreign + ": holds something other than a KVzap probe: name another"));
}

}  // namespace
}  // namespace winnow::testing
