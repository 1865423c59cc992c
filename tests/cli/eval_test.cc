// What `winnow eval` prints, stores and refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/run_command.h"

namespace winnow::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

constexpr const char* kModel = "assets/dms-cr8";
constexpr const char* kText = "assets/demo_prompt.txt";

std::string content(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

Words words(const std::string& measure, const Words& more) {
  Words all{"eval", measure, "--model", kModel, "--threads", "1"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

json run_json(const std::string& measure, Words more) {
  more.emplace_back("--json");
  const CommandResult result = run_winnow(words(measure, more));
  EXPECT_EQ(result.code, 0) << result.err;
  return json::parse(result.out);
}

const Words kNeedle{"--text", kText, "--lengths", "300,500", "--depths", "50", "--repeats", "2"};

TEST(Eval, SaysAllThatIsNeededToDoItAgain) {
  const json result = run_json("needle", kNeedle);
  EXPECT_EQ(result.at("questions"), 4);
  EXPECT_GT(result.at("compression_ratio"), 1.0);
  EXPECT_GT(result.at("kv_reads"), 0.0);
  EXPECT_GT(result.at("peak_tokens"), 0.0);
  EXPECT_EQ(result.at("map").at("accuracy").size(), 1U);
  EXPECT_EQ(result.at("map").at("accuracy")[0].size(), 2U);
  const json& run = result.at("run");
  EXPECT_EQ(run.at("measure"), "needle");
  EXPECT_EQ(run.at("command")[0], "winnow");
  EXPECT_EQ(run.at("model").at("sha256").get<std::string>().size(), 64U);
  EXPECT_EQ(run.at("cache").at("rule"), "dms");
  EXPECT_EQ(run.at("settings").at("text_sha256").get<std::string>().size(), 64U);
  EXPECT_EQ(run.at("complete"), true);
}

TEST(Eval, AFinishedRunIsNotRunAgain) {
  const TempDirectory directory;
  Words more = kNeedle;
  more.insert(more.end(), {"--out", directory.file("needle.json")});
  const json first = run_json("needle", more);
  const std::string journal = content(directory.file("needle.jsonl"));
  EXPECT_EQ(std::ranges::count(journal, '\n'), 1 + 4);
  // Removes half of it, as after an interruption.
  std::size_t cut = 0;
  for (int line = 0; line < 3; ++line) {
    cut = journal.find('\n', cut) + 1;
  }
  const std::string cut_off = directory.write("needle.jsonl", journal.substr(0, cut + 10));
  const json second = run_json("needle", more);
  EXPECT_GT(content(cut_off).size(), cut + 10);
  EXPECT_EQ(content(directory.file("needle.jsonl")).substr(0, cut), journal.substr(0, cut));
  for (const char* key : {"accuracy", "kv_reads", "peak_tokens", "compression_ratio", "map"}) {
    EXPECT_EQ(second.at(key), first.at(key)) << key;
  }
  EXPECT_EQ(json::parse(content(directory.file("needle.json"))).at("accuracy"),
            first.at("accuracy"));

  more.insert(more.end(), {"--seed", "2"});
  const CommandResult other = run_winnow(words("needle", more));
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("seed is 1 and not 2"));
}

TEST(Eval, WritesOverNothingButItsOwnResults) {
  const TempDirectory directory;
  const std::string out = directory.file("needle.json");
  Words more = kNeedle;
  more.insert(more.end(), {"--out", out});
  const auto refused = [&](const Words& flags, const std::string& why) {
    Words all = more;
    all.insert(all.end(), flags.begin(), flags.end());
    const std::string before = content(out);
    const CommandResult result = run_winnow(words("needle", all));
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr(why));
    EXPECT_EQ(content(out), before);
  };
  for (const char* foreign : {"{\"mine\": 1}", "[]", "a text"}) {
    static_cast<void>(directory.write("needle.json", foreign));
    refused({}, "needle.json: holds something other than results of `winnow eval`");
    EXPECT_FALSE(std::filesystem::exists(directory.file("needle.jsonl")));
  }
  std::filesystem::remove(out);
  const json first = run_json("needle", more);
  refused({"--deterministic"}, "deterministic is false and not true");
  std::filesystem::remove(directory.file("needle.jsonl"));
  refused({"--seed", "2"}, "seed is 1 and not 2");
  refused({"--deterministic"}, "deterministic is false and not true");
  EXPECT_EQ(run_json("needle", more).at("accuracy"), first.at("accuracy"));
}

TEST(Eval, DivergenceFromSavedLogits) {
  const TempDirectory directory;
  const Words prompts{"--text", kText, "--prompts", "2", "--context", "200", "--steps", "4"};
  Words save = prompts;
  save.insert(save.end(),
              {"--cache", "dense", "--save-logits", directory.file("dense.safetensors")});
  EXPECT_EQ(run_json("divergence", save).at("prompts"), 2);
  Words saved = prompts;
  saved.insert(saved.end(), {"--reference", directory.file("dense.safetensors")});
  const json from_file = run_json("divergence", saved);
  const json from_model = run_json("divergence", prompts);
  for (const char* key : {"kld", "forced_kld", "tokens_scored", "token_match"}) {
    EXPECT_EQ(from_file.at(key), from_model.at(key)) << key;
  }
  EXPECT_EQ(from_model.at("tokens"), 8);
}

// Otherwise a KLD of 0 looks like a result.
TEST(Eval, NotesWhatAReferenceHasInCommon) {
  const auto note_of = [](const Words& more) {
    Words all{"eval", "perplexity",   "--text", kText,       "--context",
              "64",   "--max-tokens", "63",     "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    const CommandResult result = run_winnow(all);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.err;
  };
  EXPECT_THAT(note_of({"--model", kBase, "--kv-dtype", "q4", "--reference", "dense"}),
              HasSubstr("--reference dense has --kv-dtype q4, too: the comparison leaves out what "
                        "that costs; --reference " +
                        std::string(kBase) + " includes it"));
  EXPECT_THAT(note_of({"--model", kModel, "--weights", "int8", "--kv-dtype", "fp8", "--reference",
                       "dense"}),
              HasSubstr("has --weights int8 and --kv-dtype fp8, too"));
  for (const char* same : {"dense", kBase}) {
    EXPECT_THAT(note_of({"--model", kBase, "--reference", same}), HasSubstr("nothing differs"));
  }
  EXPECT_EQ(note_of({"--model", kBase, "--kv-dtype", "q4", "--reference", kBase}), "");
  EXPECT_EQ(note_of({"--model", kModel, "--reference", "dense"}), "");
  const CommandResult divergence =
      run_winnow(words("divergence", {"--text", kText, "--prompts", "1", "--context", "64",
                                      "--steps", "1", "--kv-dtype", "int8"}));
  EXPECT_THAT(divergence.err, HasSubstr("--reference dense has --kv-dtype int8, too"));
}

TEST(Eval, TasksByLikelihoodAndByAnswers) {
  const TempDirectory directory;
  const std::string piqa = directory.write(
      "piqa.jsonl",
      "{\"goal\": \"To open a door\", \"sol1\": \"turn the handle.\", \"sol2\": \"eat it.\", "
      "\"label\": 0}\n");
  EXPECT_EQ(run_json("tasks", {"--task", "piqa", "--data", piqa}).at("questions"), 1);
  const std::string sums =
      directory.write("sums.jsonl",
                      "{\"question\": \"What is 85 - 45?\", \"answer\": \"#### 40\"}\n"
                      "{\"question\": \"What is 2 x 4?\", \"answer\": \"#### 8\"}\n");
  const json result = run_json("tasks", {"--task", "gsm8k", "--data", sums, "--chat"});
  EXPECT_EQ(result.at("accuracy"), 1.0);
  const json grid =
      run_json("hyperscale", {"--task", "gsm8k", "--data", sums, "--chat", "--lengths", "20,60",
                              "--widths", "1,2", "--out", directory.file("grid.json")});
  ASSERT_EQ(grid.at("points").size(), 4U);
  EXPECT_GT(grid.at("points")[3].at("kv_reads"), grid.at("points")[2].at("kv_reads"));
  const CommandResult frontier =
      run_winnow({"eval", "frontier", directory.file("grid.json"), "--json"});
  EXPECT_EQ(frontier.code, 0) << frontier.err;
  EXPECT_TRUE(json::parse(frontier.out).at("kv_reads").at("frontiers").contains("dms bf16"));
}

TEST(Eval, RulerScoresEveryTaskAtEveryLength) {
  const TempDirectory directory;
  const std::string hotpot = directory.write(
      "hotpot.json",
      R"([{"question": "Who sings?", "answer": "Ann", "context": [["Ann", ["Ann sings."]]]}])");
  const Words flags{"--lengths", "400,600", "--tasks",  "niah_single_2,fwe,qa_2",
                    "--samples", "1",       "--hotpot", hotpot};
  const json result = run_json("ruler", flags);
  EXPECT_EQ(result.at("questions"), 6);
  ASSERT_EQ(result.at("by_length").size(), 2U);
  for (const json& row : result.at("by_length")) {
    double sum = 0.0;
    for (const auto& [name, task] : row.at("tasks").items()) {
      EXPECT_EQ(task.at("questions"), 1) << name;
      sum += task.at("score").get<double>();
    }
    EXPECT_NEAR(row.at("score").get<double>(), sum / 3.0, 1e-9);
  }
  const CommandResult table = run_winnow(words("ruler", flags));
  EXPECT_THAT(table.out, HasSubstr("600 tokens\nniah_single_2"));
  EXPECT_THAT(table.out, HasSubstr("mean of tasks"));
}

TEST(Eval, MeasuresNothingOnWhatIsTooLong) {
  const CommandResult result =
      run_winnow(words("needle", {"--text", kText, "--lengths", "5000", "--depths", "0",
                                  "--repeats", "2", "--json"}));
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("none of 2 questions was answered: each has more tokens, its "
                                    "answer included, than the model's 4096 positions"));
  const json measured = json::parse(result.out);
  EXPECT_EQ(measured.at("skipped"), 2);
  EXPECT_EQ(measured.at("questions"), 0);
  EXPECT_TRUE(measured.at("accuracy").is_null());
}

TEST(Eval, NamesWhatIsWrong) {
  const TempDirectory directory;
  const auto error = [](const std::string& measure, const Words& more) {
    const CommandResult result = run_winnow(words(measure, more));
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  EXPECT_THAT(error("tasks", {"--task", "chess", "--data", "x"}), HasSubstr("--task chess"));
  EXPECT_THAT(error("tasks", {"--task", "gsm8k", "--data", directory.file("absent")}),
              HasSubstr("no such file"));
  EXPECT_THAT(error("tasks", {"--task", "gsm8k", "--data",
                              directory.write("bad.jsonl", "{\"question\": \"q\"}\n")}),
              HasSubstr("bad.jsonl:1: expected a text under \"answer\", found nothing"));
  EXPECT_THAT(error("tasks", {"--task", "gsm8k", "--data", "x", "--shots", "2"}),
              HasSubstr("--shots-data"));
  const std::string one =
      directory.write("one.jsonl", "{\"question\": \"q\", \"answer\": \"#### 1\"}\n");
  for (const auto& [flag, value] : {std::pair{"--max-tokens", "-5"}, {"--limit", "-1"}}) {
    EXPECT_THAT(error("tasks", {"--task", "gsm8k", "--data", one, flag, value}), HasSubstr(flag));
  }
  EXPECT_THAT(error("tasks", {"--task", "gsm8k", "--data", one, "--samples", "2"}),
              HasSubstr("--temperature 0: 2 answers would all be the same"));
  EXPECT_THAT(error("needle", {"--text", kText, "--depths", "120"}),
              HasSubstr("between 0 and 100"));
  EXPECT_THAT(error("needle", {"--text", kText, "--lengths", "40"}),
              HasSubstr("0 prompt tokens have no room for hay: what is hidden and asked takes"));
  EXPECT_THAT(error("variables", {"--style", "odd"}), HasSubstr("--style odd"));
  EXPECT_THAT(error("ruler", {"--tasks", "niah"}),
              HasSubstr("--tasks niah: expected niah_single_1"));
  EXPECT_THAT(error("ruler", {"--tasks", "qa_1"}), HasSubstr("--tasks qa_1: --squad is needed"));
  EXPECT_THAT(error("needle", {"--text", kText, "--out", "results.txt"}), HasSubstr(".json"));
  EXPECT_THAT(run_winnow({"eval", "frontier", directory.write("x.json", "[]")}).err,
              HasSubstr("expected what `winnow eval hyperscale --out` wrote"));
}

}  // namespace
}  // namespace winnow::testing
