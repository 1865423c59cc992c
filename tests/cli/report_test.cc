// winnow report, and the output of profile and latency.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/run_command.h"

namespace winnow::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

std::string text_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

json result(const char* model, const char* rule, double accuracy, double reads) {
  return {{"accuracy", accuracy},
          {"accuracy_error", 0.01},
          {"kv_reads", reads},
          {"compression_ratio", 2.0},
          {"run",
           {{"measure", "needle"},
            {"model", {{"path", model}}},
            {"cache", {{"rule", rule}, {"kv_dtype", "bf16"}}},
            {"settings", {{"text", "<hay>"}}},
            {"command", {"winnow", "eval", "needle"}},
            {"winnow", "0.1.0"},
            {"date", "2026-11-21T20:00:00Z"}}}};
}

TEST(Report, MarksTheBestAndKeepsTheCommands) {
  const TempDirectory directory;
  const auto write = [&directory](const std::string& name, const json& value) {
    return directory.write(name, value.dump());
  };
  const std::string first = write("a.json", result("models/base", "dense", 0.75, 100.0));
  const std::string second = write("b.json", result("models/student", "dms", 0.5, 50.0));
  const std::string other = write("other.json", {{"x", 1}});
  const std::string folder = std::filesystem::path(first).parent_path().string();
  const CommandResult made = run_winnow({"report", folder});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("2 results, 1 tables"));
  const std::string markdown = text_of(directory.file("report.md"));
  EXPECT_THAT(markdown, HasSubstr("| base, dense bf16 | **75.0 ± 1.0** | 2.00 | 100 |"));
  EXPECT_THAT(markdown, HasSubstr("| student, dms bf16 | 50.0 ± 1.0 | 2.00 | **50** |"));
  EXPECT_THAT(markdown, HasSubstr("    winnow eval needle\n"));
  const std::string html = text_of(directory.file("report.html"));
  EXPECT_THAT(html, HasSubstr("<td class=\"best\">75.0 ± 1.0</td>"));
  EXPECT_THAT(html, HasSubstr("<svg "));
  EXPECT_THAT(html, HasSubstr("&lt;hay&gt;"));
  EXPECT_THAT(html, Not(HasSubstr("http://localhost")));
  EXPECT_THAT(html, Not(HasSubstr("<script")));  // and no external files
}

TEST(Report, PlainFormatsAndSmallRatiosComeFirst) {
  const TempDirectory directory;
  const auto write = [&directory](const char* name, const char* measure, const char* format,
                                  double target, double measured) {
    json one = result("base", "h2o", 0.5, 100.0);
    one["run"]["measure"] = measure;
    one["run"]["cache"]["kv_dtype"] = format;
    one["run"]["cache"]["target_cr"] = target;
    one["run"]["settings"]["reference"] = {{"path", "models/reference"}, {"parameters", 3}};
    one["compression_ratio"] = measured;
    return directory.write(name, one.dump());
  };
  write("a.json", "needle", "bf16", 16.0, 15.5);
  write("b.json", "needle", "fp8", 4.0, 3.75);
  write("c.json", "needle", "bf16", 4.0, 3.5);
  const std::string last = write("d.json", "variables", "bf16", 4.0, 3.25);
  ASSERT_EQ(run_winnow({"report", std::filesystem::path(last).parent_path().string()}).code, 0);
  const std::string markdown = text_of(directory.file("report.md"));
  const std::size_t plain = markdown.find("| base, h2o bf16 4x | 3.25 to 3.50 |");
  const std::size_t fp8 = markdown.find("| base, h2o fp8 4x | 3.75 |");
  const std::size_t larger = markdown.find("| base, h2o bf16 16x | 15.50 |");
  ASSERT_NE(larger, std::string::npos) << markdown;
  EXPECT_LT(plain, fp8);
  EXPECT_LT(fp8, larger);
  EXPECT_THAT(markdown, HasSubstr("reference models/reference, text"));
}

TEST(Report, SeriesOfOneColourHaveOtherMarks) {
  const TempDirectory directory;
  std::string file;
  for (int i = 0; i < 9; ++i) {
    const std::string name = "model" + std::to_string(i);
    file =
        directory.write(name + ".json", result(name.c_str(), "dense", 0.1 * i, 100.0 + i).dump());
  }
  ASSERT_EQ(run_winnow({"report", std::filesystem::path(file).parent_path().string()}).code, 0);
  const std::string html = text_of(directory.file("report.html"));
  EXPECT_THAT(html, HasSubstr("h7v7h-7z\" fill=\"#2563a8\"><title>model8, dense bf16: 108, 0.8<"));
  EXPECT_THAT(html, HasSubstr("0-8 0z\" fill=\"#2563a8\"><title>model0, dense bf16: 100, 0<"));
}

TEST(Report, SkipsWhatIsNoJson) {
  const TempDirectory directory;
  static_cast<void>(directory.write("cut.json", "{\"run\": "));
  static_cast<void>(directory.write("good.json", result("good", "dms", 0.5, 50.0).dump()));
  const CommandResult made = run_winnow({"report", directory.path().string()});
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.err, HasSubstr("cut.json: not valid JSON"));
}

TEST(Report, SaysWhenThereIsNothing) {
  const TempDirectory directory;
  const std::string file = directory.write("x.json", "{}");
  const CommandResult empty =
      run_winnow({"report", std::filesystem::path(file).parent_path().string()});
  EXPECT_EQ(empty.code, 1);
  EXPECT_THAT(empty.err, HasSubstr("no results"));
  EXPECT_EQ(run_winnow({"report", directory.file("absent")}).code, 1);
}

TEST(Profile, TellsHeadsLengthsAndTokens) {
  const TempDirectory directory;
  const std::string page = directory.file("kept.html");
  const CommandResult made = run_winnow({"eval", "profile", "--model", "assets/dms-cr8", "--text",
                                         "assets/demo_prompt.txt", "--context", "600", "--threads",
                                         "1", "--attention", "--html", page, "--json"});
  ASSERT_EQ(made.code, 0) << made.err;
  const json profile = json::parse(made.out);
  EXPECT_EQ(profile.at("tokens"), 600);
  EXPECT_GT(profile.at("compression_ratio"), 2.0);
  EXPECT_EQ(profile.at("per_layer_head").size(), 8U);
  EXPECT_EQ(profile.at("by_length").back().at("length"), 600);
  EXPECT_EQ(profile.at("by_length").back().at("compression_ratio"),
            profile.at("compression_ratio"));
  const json& attention = profile.at("attention");
  EXPECT_EQ(attention.at("distances").back(), 512);
  EXPECT_EQ(attention.at("per_layer_head").size(), 8U);
  double sum = 0.0;
  for (const json& share : attention.at("shares")) {
    sum += share.get<double>();
  }
  EXPECT_NEAR(sum, 1.0, 1e-3);
  const std::string html = text_of(page);
  std::size_t spans = 0;
  for (std::size_t at = html.find("<span>"); at != std::string::npos;
       at = html.find("<span>", at + 1)) {
    ++spans;
  }
  EXPECT_EQ(spans, 600U);
}

TEST(Latency, IsTheModelOfThePaper) {
  const CommandResult made = run_winnow({"eval", "latency", "--shape", "qwen3-8b", "--batches", "1",
                                         "--lengths", "0", "--crs", "1", "--json"});
  ASSERT_EQ(made.code, 0) << made.err;
  const json step = json::parse(made.out).at("steps").at(0);
  EXPECT_EQ(step.at("kv_share"), 0.0);
  // 8.2 G parameters without the embedding, at 3.35 TB/s.
  EXPECT_NEAR(step.at("seconds").get<double>(), 7.57e9 * 2 / 3.35e12, 2e-4);
  EXPECT_EQ(run_winnow({"eval", "latency", "--shape", "odd"}).code, 1);
}

TEST(Latency, StandsBesideWhatWasMeasured) {
  const TempDirectory directory;
  const json bench{{"model", "qwen3-8b"},
                   {"batch", 4},
                   {"decode_depth", 1000},
                   {"generate", 48},
                   {"kv", {{"compression_ratio", 2.0}}},
                   {"decode_tokens_per_s", 1000.0},
                   {"weight_bytes_per_step", 9e9},
                   {"entry_bytes_per_step", 1e9}};
  const std::string file = directory.write("bench.json", bench.dump());
  const std::string page = directory.file("latency.html");
  const std::vector<std::string> command{"eval",     "latency", "--shape", "qwen3-8b",
                                         "--gbps",   "4000",    "--html",  page,
                                         "--beside", file,      "--json"};
  const CommandResult made = run_winnow(command);
  ASSERT_EQ(made.code, 0) << made.err;
  const json step = json::parse(made.out).at("measured").at(0);
  EXPECT_EQ(step.at("length"), 1024);
  EXPECT_DOUBLE_EQ(step.at("seconds").get<double>(), 4e-3);
  EXPECT_DOUBLE_EQ(step.at("modelled_seconds").get<double>(), 2.5e-3);  // 10 GB at 4,000 GB/s
  EXPECT_DOUBLE_EQ(step.at("kv_share").get<double>(), 0.1);
  EXPECT_THAT(text_of(page), HasSubstr("measured: bench"));
  EXPECT_THAT(run_winnow({"eval", "latency", "--shape", "llama-3.2-1b", "--beside", file}).err,
              HasSubstr("is of \"qwen3-8b\", not of \"llama-3.2-1b\""));
  EXPECT_THAT(run_winnow({"eval", "latency", "--shape", "llama-3.2-1b", "--beside",
                          directory.write("odd.json", "{}")})
                  .err,
              HasSubstr("expected what `winnow bench --json` printed"));
}

}  // namespace
}  // namespace winnow::testing
