// `winnow eval suite`: the report, its verdicts, and resuming after an interruption.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/run_command.h"

namespace winnow::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

Words suite_words(const Words& more) {
  Words all{"eval", "suite", "--model", kBase, "--compressed", kRetrofitted, "--threads", "1"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Small enough for a test: every row except far positions, which reads 16K tokens.
const Words kSmall{"--quick",   "--samples", "2",
                   "--context", "800",       "--turns",
                   "2",         "--rows",    "text,needle,variables,memory,transcript,task,cost"};

Words small_suite(const TempDirectory& directory, const std::string& text) {
  Words more = kSmall;
  const std::string sums = directory.write(
      "sums.jsonl", "{\"question\": \"What is 85 - 45?\", \"answer\": \"#### 40\"}\n");
  more.insert(more.end(), {"--text", text, "--task", "gsm8k", "--data", sums, "--chat", "--out",
                           directory.file("suite.json")});
  return suite_words(more);
}

const json& row_of(const json& results, const std::string& id) {
  for (const json& row : results.at("rows")) {
    if (row.at("id") == id) {
      return row;
    }
  }
  throw std::runtime_error("no row " + id);
}

// A text with a name that would be markup if the page did not escape it.
std::string text_in(const TempDirectory& directory) {
  return directory.write("<b>a&b.txt", read_text(WINNOW_SOURCE_DIR "/assets/demo_prompt.txt"));
}

TEST(Suite, JudgesEveryRowOnOnePageAndGoesOnWhereItStopped) {
  const TempDirectory directory;
  const Words words = small_suite(directory, text_in(directory));
  const CommandResult result = run_winnow(words);
  ASSERT_EQ(result.code, 0) << result.err;
  const json written = json::parse(read_text(directory.file("suite.json")));
  EXPECT_THAT(result.out, HasSubstr(written.at("conclusion").get<std::string>()));

  EXPECT_EQ(row_of(written, "sessions").at("verdict"), "passes");
  EXPECT_EQ(row_of(written, "sessions").at("student"), 0);
  EXPECT_EQ(row_of(written, "task").at("samples"), 1);
  const json& needle = row_of(written, "needle");
  EXPECT_EQ(needle.at("samples"), 15);  // one for each depth of each length
  // Even if all are right, so few answers cannot exclude a loss of one point.
  EXPECT_THAT(needle.at("verdict").get<std::string>(), HasSubstr("not decided: needs about"));
  EXPECT_NEAR(needle.at("student").get<double>() - needle.at("base").get<double>(),
              -needle.at("loss").get<double>(), 1e-9);
  EXPECT_GT(row_of(written, "perplexity 0").at("samples"), 2);
  EXPECT_GT(row_of(written, "kld 0").at("student"), 0.0);
  EXPECT_LT(row_of(written, "cache bytes").at("student"),
            row_of(written, "cache bytes").at("base"));
  const json& transcript = row_of(written, "transcript");
  EXPECT_THAT(transcript.at("what").get<std::string>(), HasSubstr("of 1,536 tokens"));
  EXPECT_EQ(transcript.at("details").at("by_distance").size(), 5U);
  EXPECT_EQ(transcript.at("sample"), "transcripts");
  EXPECT_EQ(written.at("run").at("settings").at("base").at("path"), kBase);
  EXPECT_EQ(written.at("run").at("model").at("path"), kRetrofitted);

  const std::string page = read_text(directory.file("suite.html"));
  EXPECT_THAT(page, HasSubstr("Perplexity of &lt;b&gt;a&amp;b.txt"));
  EXPECT_THAT(page, Not(HasSubstr("<b>a&b")));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
  for (const char* const external : {"src=", "href=", "url(", "@import", "<script"}) {
    EXPECT_THAT(page, Not(HasSubstr(external)));
  }
  for (const char* const no_number : {">nan", ">inf", "\"nan", "\"inf", "-inf", " nan "}) {
    EXPECT_THAT(page, Not(HasSubstr(no_number)));
  }

  // Removes half of it, as if it had been killed.
  const std::string journal = read_text(directory.file("suite.jsonl"));
  const std::size_t middle = journal.find('\n', journal.size() / 2) + 1;
  static_cast<void>(directory.write("suite.jsonl", journal.substr(0, middle + 7)));
  ASSERT_EQ(run_winnow(words).code, 0);
  const json again = json::parse(read_text(directory.file("suite.json")));
  EXPECT_EQ(read_text(directory.file("suite.jsonl")).substr(0, middle), journal.substr(0, middle));
  for (const char* const id : {"perplexity 0", "kld 0", "needle", "variables", "memory", "sessions",
                               "transcript", "calls", "task"}) {
    EXPECT_EQ(row_of(again, id), row_of(written, id)) << id;
  }
}

// More tokens than the models have positions, and --quick, which shortens only what is not asked.
TEST(Suite, TakesTranscriptsAsLongAsAskedIfTheModelsHaveThePositions) {
  const TempDirectory directory;
  Words words = suite_words({"--quick", "--samples", "1", "--rows", "transcript", "--json"});
  words.insert(words.end(), {"--transcript", "5000", "--html", directory.file("page.html")});
  const CommandResult result = run_winnow(words);
  ASSERT_EQ(result.code, 0) << result.err;
  const json row = row_of(json::parse(result.out), "transcript");
  EXPECT_EQ(row.at("samples"), 5);  // one for each distance
  EXPECT_THAT(row.at("what").get<std::string>(), HasSubstr("of 4,096 tokens"));
  EXPECT_THAT(row.at("note").get<std::string>(),
              HasSubstr("5,000 tokens were asked for: the models have fewer positions"));
  EXPECT_GT(row.at("details").at("by_distance").at(4).at("tokens"), 3000.0);
}

TEST(Suite, JudgesARuleWithoutTraining) {
  const TempDirectory directory;
  const Words rule{"eval", "suite", "--model", kBase, "--cache", "streaming", "--cr", "8"};
  Words words = rule;
  words.insert(words.end(), {"--quick", "--samples", "15", "--context", "800", "--rows", "needle"});
  words.insert(words.end(), {"--text", "assets/demo_prompt.txt", "--json"});
  words.insert(words.end(), {"--html", directory.file("page.html")});
  const CommandResult result = run_winnow(words);
  ASSERT_EQ(result.code, 0) << result.err;
  const json written = json::parse(result.out);
  EXPECT_EQ(row_of(written, "needle").at("verdict"), "loses") << result.out;
  EXPECT_THAT(written.at("conclusion").get<std::string>(), HasSubstr("No, not for everything"));
  EXPECT_GT(written.at("compression_ratio"), 3.0);
}

TEST(Suite, JudgesAFormatOfEntries) {
  const TempDirectory directory;
  Words words{"eval", "suite", "--model", kBase, "--kv-dtype", "q4", "--rows", "text", "--quick"};
  words.insert(words.end(), {"--context", "256", "--text", "assets/demo_prompt.txt", "--json"});
  words.insert(words.end(), {"--html", directory.file("page.html")});
  const CommandResult result = run_winnow(words);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_GT(row_of(json::parse(result.out), "kld 0").at("student"), 0.001) << result.out;
}

// Files of the base, but with fewer positions.
std::string base_with_positions(const TempDirectory& directory, int positions) {
  const std::filesystem::path source = std::filesystem::path(WINNOW_SOURCE_DIR) / kBase;
  const std::filesystem::path copy = directory.file("base");
  std::filesystem::create_directory(copy);
  for (const auto& file : std::filesystem::directory_iterator(source)) {
    std::filesystem::create_symlink(file.path(), copy / file.path().filename());
  }
  json config = json::parse(read_text(source / "config.json"));
  config["max_position_embeddings"] = positions;
  std::filesystem::remove(copy / "config.json");
  static_cast<void>(directory.write("base/config.json", config.dump()));
  return copy.string();
}

// Before either model answers anything: nothing is left of --out.
TEST(Suite, RefusesRowsWithoutEnoughPositionsBeforeItMeasures) {
  const TempDirectory directory;
  const auto suite_of = [&](const std::string& base, const Words& more) {
    Words words{"eval", "suite", "--model", base, "--cache", "streaming", "--cr", "4", "--quick"};
    words.insert(words.end(), {"--samples", "1", "--threads", "1"});
    words.insert(words.end(), {"--html", directory.file("page.html")});
    words.insert(words.end(), more.begin(), more.end());
    return run_winnow(words);
  };
  const std::string base = base_with_positions(directory, 512);
  const CommandResult all = suite_of(base, {"--turns", "2", "--out", directory.file("suite.json")});
  EXPECT_EQ(all.code, 1);
  EXPECT_THAT(all.err, HasSubstr("512 positions"));
  EXPECT_THAT(all.err, HasSubstr("transcript"));
  EXPECT_THAT(all.err, HasSubstr("--rows text,needle,variables,memory,positions,cost")) << all.err;
  EXPECT_EQ(std::ranges::count(all.err, '\n'), 1) << all.err;
  EXPECT_FALSE(std::filesystem::exists(directory.file("suite.jsonl")));

  const CommandResult turns = suite_of(base, {"--turns", "60", "--rows", "text,memory"});
  EXPECT_EQ(turns.code, 1);
  EXPECT_THAT(turns.err, HasSubstr("memory (--turns 60: a conversation takes"));
  EXPECT_THAT(turns.err, HasSubstr("--rows text"));
  const CommandResult alone = suite_of(base, {"--rows", "transcript"});
  EXPECT_EQ(alone.code, 1);
  EXPECT_THAT(alone.err, HasSubstr("has no room for 3 steps"));
  EXPECT_THAT(alone.err, Not(HasSubstr("--rows")));  // none is left

  const CommandResult rest = suite_of(base, {"--rows", "needle"});
  EXPECT_EQ(rest.code, 0) << rest.err;
}

TEST(Suite, NamesWhatIsWrong) {
  const auto error = [](const Words& words) {
    const CommandResult result = run_winnow(words);
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_THAT(error({"eval", "suite", "--model", kBase}), HasSubstr("--compressed: a student"));
  EXPECT_THAT(error(suite_words({"--rows", "needle,chess"})), HasSubstr("--rows chess"));
  EXPECT_THAT(error(suite_words({"--samples", "-1"})), HasSubstr("--samples -1"));
  EXPECT_THAT(error(suite_words({"--task", "piqa", "--data", "x"})), HasSubstr("--task piqa"));
  EXPECT_THAT(error(suite_words({"--task", "gsm8k"})), HasSubstr("--task requires --data"));
}

}  // namespace
}  // namespace winnow::testing
