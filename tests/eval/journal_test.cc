#include "eval/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "eval/temp_file.h"

namespace winnow::eval {
namespace {

using ::testing::HasSubstr;
using winnow::testing::message_of;
using winnow::testing::TempFile;

const Json kRun{{"measure", "test"}, {"seed", 1}};

TEST(Journal, KeepsRecordsInMemory) {
  Journal journal;
  EXPECT_EQ(journal.find("a"), nullptr);
  journal.add("a", {{"x", 1}});
  ASSERT_NE(journal.find("a"), nullptr);
  EXPECT_EQ(journal.find("a")->at("x"), 1);
  EXPECT_EQ(journal.find("a")->at("id"), "a");
}

TEST(Journal, AnotherProcessGoesOn) {
  const TempFile file(".jsonl");
  {
    Journal journal(file.path(), kRun);
    journal.add("a", {{"x", 1}});
  }
  {
    Journal journal(file.path(), kRun);
    EXPECT_EQ(journal.size(), 1U);
    journal.add("b", {{"x", 2}});
  }
  const Journal journal(file.path(), kRun);
  EXPECT_EQ(journal.size(), 2U);
  EXPECT_EQ(journal.find("b")->at("x"), 2);
}

TEST(Journal, SectionsShareTheFileAndNoIds) {
  const TempFile file(".jsonl");
  {
    Journal journal(file.path(), kRun);
    Journal base = journal.section("needle").section("base");
    base.add("1", {{"x", 1}});
    EXPECT_EQ(journal.section("needle").section("student").find("1"), nullptr);
    EXPECT_EQ(journal.find("1"), nullptr);
    EXPECT_EQ(journal.find("needle/base/1")->at("x"), 1);
    EXPECT_EQ(journal.size(), 1U);
  }
  const Journal journal(file.path(), kRun);
  EXPECT_EQ(journal.section("needle").section("base").find("1")->at("x"), 1);
}

TEST(Journal, DropsALineThatWasNotFinished) {
  const TempFile file(".jsonl");
  { Journal(file.path(), kRun).add("a", {{"x", 1}}); }
  const std::string whole = file.read();
  for (std::size_t cut = 1; cut < whole.size(); ++cut) {
    file.write(whole.substr(0, cut));
    {
      Journal journal(file.path(), kRun);
      EXPECT_EQ(journal.size(), 0U) << cut;
      journal.add("a", {{"x", 1}});
    }
    ASSERT_EQ(file.read(), whole) << cut;
  }
}

TEST(Journal, RefusesTheRecordsOfAnotherRun) {
  const TempFile file(".jsonl");
  { const Journal journal(file.path(), kRun); }
  const std::string message = message_of([&] {
    Journal(file.path(), {{"measure", "test"}, {"seed", 2}});
  });
  EXPECT_THAT(message, HasSubstr(file.path().string()));
  EXPECT_THAT(message, HasSubstr("seed is 1 and not 2"));
}

// As when flags are refused after it was opened.
TEST(Journal, DropsAFileWithoutRecords) {
  const TempFile file(".jsonl");
  Journal(file.path(), kRun).drop_if_empty();
  EXPECT_FALSE(std::filesystem::exists(file.path()));
  Journal begun(file.path(), kRun);
  Journal(file.path(), kRun).drop_if_empty();  // another one has begun it
  EXPECT_TRUE(std::filesystem::exists(file.path()));
  begun.add("a", {{"x", 1}});
  begun.drop_if_empty();
  EXPECT_EQ(Journal(file.path(), kRun).size(), 1U);
}

TEST(Journal, LeavesAFileThatIsNoJournalAsItIs) {
  const TempFile file(".jsonl");
  const std::string data = "{\"question\": \"2 + 2\", \"answer\": \"#### 4\"}";
  for (const std::string& text : {data, data + "\n", data + "\n" + data}) {
    file.write(text);
    EXPECT_THAT(message_of([&] { Journal(file.path(), kRun); }),
                HasSubstr("is no journal of `winnow eval`: name another file"));
    EXPECT_EQ(file.read(), text);
  }
}

TEST(Journal, NamesTheLineThatIsNoRecord) {
  const TempFile file(".jsonl");
  for (const char* line : {"nonsense\n", "[1]\n", "{\"x\": 1}\n", "{\"id\": 3}\n"}) {
    file.write(kRun.dump() + "\n" + line);
    EXPECT_THAT(message_of([&] { Journal(file.path(), kRun); }), HasSubstr(".jsonl:2: ")) << line;
  }
}

TEST(Results, AreReplacedByTheirOwnRunOnly) {
  const TempFile file(".json");
  const auto message = [&](const std::string& text) {
    file.write(text);
    return message_of([&] { require_results_of(file.path(), kRun); });
  };
  for (const char* foreign : {"a text", "[]", "{\"x\": 1}", "{\"run\": []}", "{\"run\": 3}"}) {
    EXPECT_THAT(message(foreign), HasSubstr(file.path().string() + ": holds something other"));
  }
  EXPECT_THAT(message(R"({"run": {"measure": "test", "seed": 2}})"),
              HasSubstr("seed is 2 and not 1"));
  EXPECT_THAT(message(R"({"run": {"measure": "test"}})"), HasSubstr("seed is not said and not 1"));
  file.write(R"({"accuracy": 1, "run": {"measure": "test", "seed": 1, "batch": 8}})");
  EXPECT_NO_THROW(require_results_of(file.path(), kRun));
  file.write("");
  EXPECT_NO_THROW(require_results_of(file.path(), kRun));
  std::filesystem::remove(file.path());
  EXPECT_NO_THROW(require_results_of(file.path(), kRun));
}

TEST(Journal, NamesADirectoryInItsPlace) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path();
  for (const std::string& message : {message_of([&] { Journal(folder, kRun); }),
                                     message_of([&] { require_results_of(folder, kRun); })}) {
    EXPECT_THAT(message, HasSubstr(folder.string() + ": cannot "));
    EXPECT_THAT(message, HasSubstr("s a directory"));
  }
}

TEST(Journal, SaysWhenItCannotWrite) {
  EXPECT_THAT(message_of([] { Journal("/absent/directory/file.jsonl", kRun); }),
              HasSubstr("cannot write"));
}

}  // namespace
}  // namespace winnow::eval
