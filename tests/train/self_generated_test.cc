#include "train/self_generated.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "answers/answer_check.h"
#include "checkpoint/checkpoint_testing.h"
#include "train/document.h"
#include "train/line_reader.h"

namespace winnow::train {
namespace {

const std::string kModel = WINNOW_SOURCE_DIR "/assets/base";

class SelfGenerated : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    LoadOptions options;
    options.model = kModel;
    model_ = engine::load_model(options);
    tokenizer_ = load_tokenizer(kModel);
  }
  static void TearDownTestSuite() {
    model_.reset();
    tokenizer_.reset();
  }

  std::vector<std::string> write(const SelfGeneratedOptions& options) {
    const auto file = directory_.path() / "data.jsonl";
    const auto counts = write_self_generated(*model_, *tokenizer_, options, file);
    EXPECT_EQ(counts.finished, options.documents);
    std::vector<std::string> lines;
    LineReader reader(file);
    for (std::string line; reader.next(line);) {
      lines.push_back(line);
    }
    return lines;
  }

  static SelfGeneratedOptions options() {
    SelfGeneratedOptions options;
    options.documents = 7;
    options.max_tokens = 12;
    options.sampling.temperature = 1.0;
    options.sampling.seed = 3;
    return options;
  }

  static inline std::unique_ptr<const engine::LoadedModel> model_;
  static inline std::unique_ptr<const Tokenizer> tokenizer_;
  TempDir directory_;
};

TEST_F(SelfGenerated, IsTrainingData) {
  const auto lines = write(options());
  ASSERT_EQ(lines.size(), 7U);
  const DocumentEncoder encoder(kModel, model_->model.spec(), false);
  for (const std::string& line : lines) {
    EXPECT_FALSE(encoder.encode(line).tokens.empty()) << line;
    EXPECT_TRUE(nlohmann::json::parse(line).contains("text"));
  }
  EXPECT_NE(lines[0], lines[1]);
}

TEST_F(SelfGenerated, FollowsFromTheSeed) {
  auto other = options();
  other.sampling.seed = 4;
  const auto lines = write(options());
  EXPECT_EQ(write(options()), lines);
  EXPECT_NE(write(other), lines);
}

TEST_F(SelfGenerated, ContinuesPromptsInTurn) {
  auto prompted = options();
  prompted.prompts = {{"Once upon a time"}, {"The capital of France"}};
  const auto lines = write(prompted);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto json = nlohmann::json::parse(lines[i]);
    EXPECT_EQ(json.at("prompt"), prompted.prompts[i % 2].text);
    EXPECT_FALSE(json.at("completion").get<std::string>().empty());
  }
}

TEST_F(SelfGenerated, KeepsWhatStatesTheAnswer) {
  auto asked = options();
  for (int i = 0; i < 7; ++i) {
    asked.prompts.push_back(
        {fmt::format("Question: How much is {} + 2?\nAnswer: The answer is", i)});
  }
  const auto all = write(asked);
  std::vector<std::string> expected;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto completion = nlohmann::json::parse(all[i]).at("completion").get<std::string>();
    const std::string stated = answers::last_number(completion);
    const bool is_right = i % 2 == 0 && !stated.empty();
    asked.prompts[i].answer = is_right ? stated + ".0" : "-77777";
    if (is_right) {
      expected.push_back(all[i]);
    }
  }
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(write(asked), expected);
}

TEST_F(SelfGenerated, CountsTokensAsTheyCome) {
  auto watched = options();
  std::vector<SelfGeneratedCounts> seen;
  watched.on_progress = [&](const SelfGeneratedCounts& counts) {
    seen.push_back(counts);
    return true;
  };
  write(watched);
  EXPECT_EQ(seen.front().finished, 0);
  EXPECT_EQ(seen.front().tokens, watched.documents) << "the first step gives each its first";
  EXPECT_GT(seen.back().tokens, watched.documents);
  EXPECT_LE(seen.back().tokens, watched.documents * watched.max_tokens);
}

TEST_F(SelfGenerated, EndsWhenItIsTold) {
  auto stopped = options();
  stopped.documents = 100000;
  stopped.on_progress = [](const SelfGeneratedCounts& done) { return done.finished < 3; };
  const auto written =
      write_self_generated(*model_, *tokenizer_, stopped, directory_.path() / "data.jsonl").kept;
  EXPECT_GE(written, 3);
  EXPECT_LT(written, 100000);
  const std::string lines = directory_.read("data.jsonl");
  EXPECT_EQ(std::ranges::count(lines, '\n'), written);
}

TEST_F(SelfGenerated, ReplacesAFileAtTheEndOnly) {
  directory_.write("data.jsonl", "of an earlier run");
  auto watched = options();
  watched.on_progress = [&](const SelfGeneratedCounts&) {
    EXPECT_EQ(directory_.read("data.jsonl"), "of an earlier run");
    return true;
  };
  write(watched);
  EXPECT_NE(directory_.read("data.jsonl"), "of an earlier run");
}

TEST_F(SelfGenerated, RefusedOrStoppedAtOnceItTouchesNothing) {
  directory_.write("data.jsonl", "of an earlier run");
  const auto file = directory_.path() / "data.jsonl";
  auto wrong = options();
  wrong.sampling.top_p = 3.0;
  EXPECT_THAT(error_of([&] { write_self_generated(*model_, *tokenizer_, wrong, file); }),
              ::testing::HasSubstr("top-p"));
  auto stopped = options();
  stopped.on_progress = [](const SelfGeneratedCounts&) { return false; };
  EXPECT_EQ(write_self_generated(*model_, *tokenizer_, stopped, file).finished, 0);
  EXPECT_EQ(directory_.read("data.jsonl"), "of an earlier run");
  const std::filesystem::directory_iterator left(directory_.path());
  EXPECT_EQ(std::distance(begin(left), end(left)), 1) << "nothing lies beside it";
}

}  // namespace
}  // namespace winnow::train
