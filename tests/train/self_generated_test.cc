#include "train/self_generated.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "answers/answer_check.h"
#include "checkpoint/checkpoint_testing.h"
#include "train/document.h"
#include "train/line_reader.h"

namespace winnow::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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

  // Goes on with what is in the file.
  SelfGeneratedCounts go_on(const SelfGeneratedOptions& options) const {
    DocumentFile file(file_);
    return write_self_generated(*model_, *tokenizer_, options, file);
  }

  [[nodiscard]] std::string refusal(const SelfGeneratedOptions& options) const {
    return error_of([&] { go_on(options); });
  }

  // Begins anew.
  std::vector<std::string> write(const SelfGeneratedOptions& options) {
    std::filesystem::remove(file_);
    const auto counts = go_on(options);
    EXPECT_EQ(counts.finished, options.documents);
    EXPECT_EQ(counts.earlier, 0);
    std::vector<std::string> lines;
    LineReader reader(file_);
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
  std::filesystem::path file_ = directory_.path() / "data.jsonl";
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
  const auto written = go_on(stopped).kept;
  EXPECT_GE(written, 3);
  EXPECT_LT(written, 100000);
  const std::string lines = directory_.read("data.jsonl");
  EXPECT_EQ(std::ranges::count(lines, '\n'), written);
}

TEST_F(SelfGenerated, IsInTheFileAsItComes) {
  auto watched = options();
  watched.documents = 100;  // more than are generated at once
  std::int64_t seen = 0;
  watched.on_progress = [&](const SelfGeneratedCounts& counts) {
    const std::string lines = directory_.read("data.jsonl");
    EXPECT_EQ(std::ranges::count(lines, '\n'), counts.kept);
    EXPECT_TRUE(lines.empty() || lines.ends_with('\n'));
    seen += counts.kept > 0 && counts.kept < 100 ? 1 : 0;
    return true;
  };
  write(watched);
  EXPECT_GT(seen, 0);
}

TEST_F(SelfGenerated, RefusedOrStoppedAtOnceItLeavesNothing) {
  auto wrong = options();
  wrong.sampling.top_p = 3.0;
  EXPECT_THAT(refusal(wrong), HasSubstr("top-p"));
  auto stopped = options();
  stopped.on_progress = [](const SelfGeneratedCounts&) { return false; };
  EXPECT_EQ(go_on(stopped).finished, 0);
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(SelfGenerated, AnotherFileIsLeftAsItIs) {
  const std::string other = "{\"text\": \"of another program\"}\n";
  directory_.write("data.jsonl", other);
  EXPECT_THAT(refusal(options()), HasSubstr("data.jsonl: holds something other than documents with "
                                            "a journal data.jsonl.journal: name another file"));
  directory_.write("data.jsonl", "");
  directory_.write("data.jsonl.journal", other);
  EXPECT_THAT(refusal(options()),
              HasSubstr("data.jsonl.journal: holds something other than a journal of documents"));
  EXPECT_EQ(directory_.read("data.jsonl.journal"), other);
  EXPECT_EQ(directory_.read("data.jsonl"), "");
}

TEST_F(SelfGenerated, TheJournalIsBesideTheFileThatALinkNames) {
  const auto folder = directory_.path() / "links";
  std::filesystem::create_directory(folder);
  std::filesystem::create_symlink(file_, folder / "link");
  DocumentFile file(folder / "link");
  EXPECT_EQ(write_self_generated(*model_, *tokenizer_, options(), file).kept, 7);
  EXPECT_EQ(std::ranges::count(directory_.read("data.jsonl"), '\n'), 7);
  EXPECT_TRUE(std::filesystem::exists(directory_.path() / "data.jsonl.journal"));
  EXPECT_FALSE(std::filesystem::exists(folder / "link.journal"));
}

TEST_F(SelfGenerated, OneRunAtATimeWritesAFile) {
  const DocumentFile file(file_);
  EXPECT_THAT(refusal(options()), HasSubstr("data.jsonl: another run is writing it: wait for its "
                                            "end or name another file"));
}

TEST_F(SelfGenerated, GoesOnOnlyWithTheSameSettings) {
  const auto lines = write(options());
  const std::string before = directory_.read("data.jsonl");
  const auto expect_refused = [&](const SelfGeneratedOptions& other, const std::string& why) {
    EXPECT_THAT(refusal(other),
                AllOf(HasSubstr("data.jsonl.journal: holds another run, whose "), HasSubstr(why)));
    EXPECT_EQ(directory_.read("data.jsonl"), before);
  };
  auto other = options();
  other.sampling.seed = 4;
  expect_refused(other, "seed is 3 and not 4");
  other = options();
  other.max_tokens = 13;
  expect_refused(other, "max_tokens is 12 and not 13");
  other = options();
  other.prompts = {{"Once upon a time"}};
  expect_refused(other, "prompts_sha256 is not said");
  other = options();
  other.run = {{"model", "another"}};
  expect_refused(other, "model is not said and not \"another\"");
  EXPECT_EQ(go_on(options()).earlier, 7);
  EXPECT_EQ(directory_.read("data.jsonl"), before);
}

TEST_F(SelfGenerated, NamesALineThatIsNoDocumentOfTheRun) {
  auto prompted = options();
  prompted.prompts = {{"Once upon a time"}, {"The capital of France"}};
  const auto lines = write(prompted);
  const std::string changed = lines[0] + "\n" + lines[2] + "\n";
  directory_.write("data.jsonl", changed);
  EXPECT_THAT(refusal(prompted), HasSubstr("data.jsonl:2: is not document 1 of this run"));
  EXPECT_EQ(directory_.read("data.jsonl"), changed);
  directory_.write("data.jsonl", "no document\n");
  EXPECT_THAT(refusal(prompted), HasSubstr("data.jsonl:1: is not document 0 of this run"));
  EXPECT_TRUE(std::filesystem::exists(directory_.path() / "data.jsonl.journal"));
}

// With results that do not depend on what is computed beside them.
class SelfGeneratedAgain : public SelfGenerated {
 protected:
  static void SetUpTestSuite() {
    LoadOptions options;
    options.model = kModel;
    options.deterministic = true;
    model_ = engine::load_model(options);
    tokenizer_ = load_tokenizer(kModel);
  }

  // More documents than are generated at once. Those of two prompts of five are left out. Those of
  // a long prompt are finished after later ones.
  static SelfGeneratedOptions some_kept() {
    auto asked = options();
    asked.documents = 90;
    asked.prompts = {{"Once upon a time"}, {"The answer is"}, {"The capital"}, {"It is"}, {"In"}};
    for (int i = 0; i < 20; ++i) {
      asked.prompts[2].text += " and another capital";
    }
    asked.prompts[1].answer = asked.prompts[3].answer = "-77777";
    return asked;
  }
};

TEST_F(SelfGeneratedAgain, AfterAStopItIsTheFileOfAnUninterruptedRun) {
  const auto whole = some_kept();
  const auto expected = write(whole);
  ASSERT_EQ(expected.size(), 54U);
  const std::string bytes = directory_.read("data.jsonl");
  int out_of_turn = 0;
  for (const int steps : {12, 14, 16}) {
    std::filesystem::remove(file_);
    auto stopped = whole;
    stopped.on_progress = [left = steps](const SelfGeneratedCounts&) mutable { return --left > 0; };
    const auto first = go_on(stopped);
    EXPECT_LT(first.finished, 90);
    out_of_turn += directory_.read("data.jsonl.journal").find("completion") != std::string::npos;
    const auto second = go_on(whole);
    EXPECT_EQ(second.finished, 90);
    EXPECT_GE(second.earlier, first.finished);
    EXPECT_EQ(directory_.read("data.jsonl"), bytes) << steps;
  }
  EXPECT_GT(out_of_turn, 0) << "documents that were finished before earlier ones";
}

TEST_F(SelfGeneratedAgain, AfterAKillItIsTheFileOfAnUninterruptedRun) {
  const auto whole = some_kept();
  write(whole);
  const std::string bytes = directory_.read("data.jsonl");
  const std::string journal = directory_.read("data.jsonl.journal");
  for (const std::size_t share : {0, 3, 5, 9}) {  // tenths that were written
    directory_.write("data.jsonl", bytes.substr(0, bytes.size() * share / 10));
    directory_.write("data.jsonl.journal", journal + "{\"id\": \"8");
    const auto counts = go_on(whole);
    EXPECT_EQ(counts.finished, 90);
    EXPECT_LT(counts.earlier, 90);
    EXPECT_EQ(directory_.read("data.jsonl"), bytes) << share;
  }
}

TEST_F(SelfGeneratedAgain, MoreDocumentsMayFollow) {
  auto more = options();
  more.documents = 12;
  const auto expected = write(more);
  const auto first = write(options());
  EXPECT_EQ(first, std::vector(expected.begin(), expected.begin() + 7));
  const auto counts = go_on(more);
  EXPECT_EQ(counts.earlier, 7);
  EXPECT_EQ(directory_.read("data.jsonl"), fmt::format("{}\n", fmt::join(expected, "\n")));
}

TEST_F(SelfGeneratedAgain, ADeviceIsWrittenAsItIs) {
  DocumentFile file("/dev/null");
  EXPECT_EQ(write_self_generated(*model_, *tokenizer_, options(), file).kept, 7);
}

}  // namespace
}  // namespace winnow::train
