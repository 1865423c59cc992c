// Error messages for users, and the output after Ctrl-C.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/device_list.h"
#include "cli/run_command.h"

namespace winnow::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Words = std::vector<std::string>;

constexpr const char* kTiny = "tests/fixtures/models/llama";

void expect_error(const Words& words, const std::string& names, const std::string& input = "") {
  const CommandResult result = run_winnow(words, input);
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, StartsWith("winnow: error: "));
  EXPECT_THAT(result.err, HasSubstr(names));
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
}

void expect_generate_error(const std::string& model, const Words& more, const std::string& names) {
  Words words{"generate", "--model", model, "--prompt", "x", "--max-tokens", "2"};
  words.insert(words.end(), more.begin(), more.end());
  expect_error(words, names);
}

TEST(Errors, Flags) {
  expect_error({"tokenize", "--model", kBase, "bogus"},
               "not expected: bogus (see winnow tokenize --help)");
  expect_error({"bench", "--model", kRetrofitted, "--head-spread", "0.5"},
               "--head-spread goes with drawn decisions: --evict-rate or --cr");
  expect_error(
      {"bench", "--model", kRetrofitted, "--head-spread", "0.5", "--cache", "dense"},
      "--evict-rate and --head-spread go with --cache dms, dmc, dms_quest and dms_budget, this "
      "run is dense");
  expect_error({"bench", "--model", kRetrofitted, "--head-spread", "-1", "--evict-rate", "0.5"},
               "--head-spread -1: expected 0 to 1");
  expect_error({"bench", "--model", kRetrofitted, "--head-spread", "0.5", "--evict-rate", "0.2"},
               "--head-spread 0.5: a head would keep 1.20 times its tokens");
  expect_error({"generate"}, "--model");
  expect_error({"generate", "--model", kBase}, "--prompt");
  expect_generate_error(kBase, {"--bogus"}, "--bogus");
  expect_generate_error(kBase, {"--max-tokens", "many"}, "--max-tokens");
  expect_generate_error(kBase, {"--prompt-file", "y"}, "exclude");
  expect_generate_error(kBase, {"--system", "s"}, "--system");
  expect_generate_error(kBase, {"--stop", ""}, "--stop");
  expect_generate_error(kBase, {"--temperature", "-1"}, "temperature");
}

TEST(Errors, UnknownWordsNameWhatMayBeMeant) {
  expect_error({"bogus"}, "winnow has no command bogus (see winnow --help)");
  expect_error({"caht"}, "winnow has no command caht (is chat meant? see winnow --help)");
  expect_error({"eval", "neddle"},
               "winnow eval has no command neddle (is needle meant? see winnow eval --help)");
  expect_error({"--bogus", "bench"}, "--bogus");
  const std::string prompt =
      "winnow generate has no flag --promt (is --prompt meant? see winnow generate --help)";
  expect_error({"generate", "--model", kBase, "--promt", "hi"}, prompt);
  expect_error({"generate", "--promt=hi", "--model", kBase}, prompt);
  expect_error({"chat", "--modle", kBase}, "winnow chat has no flag --modle (is --model meant?");
  expect_error({"eval", "needle", "--model", kBase, "--lenghts", "10"},
               "(is --lengths meant? see winnow eval needle --help)");
  for (const char* command : {"chat", "serve"}) {
    expect_error({command}, fmt::format("--model is required (see winnow {} --help)", command));
  }
  expect_error({"chat", "-m", kBase},
               "winnow chat has no flag -m (llama.cpp's -m is --model here;");
}

TEST(Errors, AWordWithoutAFlagIsTheModel) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"generate", kBase, "--prompt", "The", "--max-tokens", "2"},
           {"generate", "--prompt", "The", "--max-tokens", "2", kBase},
           {"chat", kBase},
           {"tokenize", kBase},
           {"retrofit", kBase, "--dry-run"},
           {"train", kBase, "--dry-run"}}) {
    const CommandResult result = run_winnow(words);
    EXPECT_EQ(result.code, 0) << words.front() << ": " << result.err;
  }
  expect_error({"serve", kBase, "--port", "-1"}, "--port -1");
  expect_error({"chat", "nothing"}, "nothing: no such file or directory; a model is a folder");
  expect_error({"generate", "--prompt", "Hello", "world", "--model", kBase},
               fmt::format("world, {}: expected one model; a word without a flag is one, too (see "
                           "winnow generate --help)",
                           kBase));
  expect_error({"generate", "--model", kBase, "--prompt", "Hello", "world"},
               "not expected: world (see winnow generate --help)");
}

TEST(Errors, ADeviceThatThisBuildHasNoCodeFor) {
  if (list_devices().problem.find("this build") == std::string::npos) {
    GTEST_SKIP() << "a build with CUDA";
  }
  const std::string names =
      "--device cuda: this build has no code for NVIDIA GPUs (if this machine has one, "
      "make build";
  expect_generate_error(kBase, {"--device", "cuda"}, names);
  expect_error({"bench", "--device", "cuda", "--shape", "llama-3.1-70b"}, names);
  const std::string plans = "; --memory-gib 24 plans for a GPU with 24 GiB that is elsewhere";
  for (const Words& command : {Words{"retrofit", "--model"}, Words{"train", "--init"}}) {
    Words words = command;
    words.insert(words.end(), {kBase, "--dry-run", "--device", "cuda"});
    const CommandResult result = run_winnow(words);
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr(names), HasSubstr(plans)));
    words.insert(words.end(), {"--memory-gib", "80"});
    EXPECT_EQ(run_winnow(words).code, 0);
  }
  expect_error({"retrofit", "--model", kBase, "--device", "cuda", "--out", "x", "--data", "y"},
               names);
}

TEST(Errors, CacheFlagsAgainstTheModel) {
  expect_generate_error(kBase, {"--cache", "dms"}, "--cache h2o --cr 4 compresses any model");
  expect_generate_error(kBase, {"--cache", "dmc"}, "--cache dmc");
  expect_generate_error(kBase, {"--cache", "lru"}, "--cache lru");
  expect_generate_error(kBase, {"--cache", "tova"}, "--cr");
  expect_generate_error(kBase, {"--window", "9"}, "--window 9");
  expect_generate_error(kRetrofitted, {"--cr", "4"}, "--cr 4");
  expect_generate_error(kRetrofitted, {"--kv-dtype", "q3"}, "--kv-dtype q3");
}

// None of these flags would change anything.
TEST(Errors, FlagsWithoutEffect) {
  const TempDirectory directory;
  const std::string out = directory.file("out");
  expect_generate_error(kBase, {"--documents", "5"}, "--documents requires --data-out");
  expect_error({"generate", "--model", kBase, "--data-out", out}, "add --temperature 1");
  expect_error({"generate", "--model", kBase, "--data-out", out, "--temperature", "1", "--system",
                "be brief"},
               "--system");
  for (const char* flag : {"--prompt-tokens", "--total-tokens"}) {
    expect_error({"logits", "--model", kTiny, "--tokens", "1,2", "--output", out, flag, "5"},
                 std::string(flag) + " 5: goes with");
  }
  expect_error({"logits", "--model", kTiny, "--tokens", "1,2", "--output", out, "--cache", "quest",
                "--cr", "2", "--prompt-tokens", "5"},
               "--prompt-tokens 5: expected at most 2, the --total-tokens");
  expect_error({"serve", "--model", kBase, "--cache-dir-size", "1"},
               "--cache-dir-size requires --cache-dir");
  expect_error({"serve", "--model", kBase, "--no-prefix-cache", "--prefix-cache-gib", "1"},
               "--no-prefix-cache excludes --prefix-cache-gib");
  EXPECT_FALSE(fs::exists(out));
}

TEST(Errors, SayWhichFlagIsToBeChanged) {
  const TempDirectory directory;
  expect_error({"tokenize", "--model", "nope"},
               "nope: no such file or directory; a model is a folder");
  expect_error({"chat", "--model", "qwen3:0.6b"}, "org/name on the Hugging Face Hub");
  expect_error({"eval", "needle", "--model", kBase, "--text", "assets/demo_prompt.txt", "--lengths",
                "10", "--threads", "1"},
               "--lengths: ");
  for (const char* flag : {"--tflops", "--gbps", "--weight-bytes", "--kv-bytes"}) {
    expect_error({"eval", "latency", "--shape", "qwen3-8b", flag, "0"},
                 std::string(flag) + " 0: expected more than 0");
  }
  const std::string data = directory.file("data.jsonl");
  expect_error({"generate", "--model", kBase, "--data-out", data, "--documents", "1",
                "--temperature", "1", "--kv-gib", "0.0001"},
               "no room for one document, its prompt and 16 new tokens");
  EXPECT_FALSE(fs::exists(data)) << "nothing was written";
}

TEST(Errors, AChatTemplateThatSaysNothing) {
  const TempDirectory directory;
  fs::copy(fs::path(WINNOW_SOURCE_DIR) / kBase, directory.path() / "model");
  fs::remove(directory.path() / "model/tokenizer_config.json");
  static_cast<void>(
      directory.write("model/tokenizer_config.json", "{\"chat_template\": \"{# nothing #}\"}"));
  expect_generate_error(directory.file("model"), {"--chat"},
                        "model: the chat template makes an empty prompt");
}

TEST(Errors, MissingFiles) {
  const TempDirectory directory;
  expect_generate_error(directory.file("absent"), {}, "absent: no such file or directory");
  expect_generate_error("README.md", {}, "README.md: neither a directory nor a GGUF file");
  expect_generate_error("docs", {}, "docs: no model: it has no config.json");
  expect_error({"inspect", directory.file("absent")}, "absent");
  expect_error({"tokenize", "--model", kTiny}, "tokenizer");
  expect_error({"generate", "--model", kBase, "--prompt-file", directory.file("absent.txt")},
               "absent.txt");
  expect_error({"eval", "perplexity", "--model", kBase, "--text", "assets/demo_prompt.txt",
                "--cache", "snapkv", "--cr", "4"},
               "--cache snapkv: only prompts shrink");
  expect_generate_error(kBase, {"--cache", "random", "--cr", "4", "--tensor-parallel", "2"},
                        "--cache random with --tensor-parallel: runs on one rank only");
  expect_error({"eval", "ruler", "--model", kBase, "--tasks", "vt", "--lengths", "512,512"},
               "--lengths 512: given twice");
  const std::string list = directory.write("list.json", "[]");
  expect_error(
      {"eval", "ruler", "--model", directory.file("absent"), "--tasks", "qa_1", "--squad", list},
      list);  // before the model is looked for
  for (const char* flag : {"--squad", "--hotpot", "--text"}) {
    expect_error({"eval", "ruler", "--model", kBase, "--tasks", "vt", flag, list},
                 flag + (" " + list) + ": none of --tasks reads it");
  }
  expect_error({"eval", "perplexity", "--model", kBase, "--text", directory.file("absent.txt")},
               "absent.txt");
}

TEST(Errors, TokenLists) {
  const TempDirectory directory;
  const std::string output = directory.file("out.safetensors");
  for (const char* tokens : {"1,,3", ",1", "1,2,", "1,x", "-1", "1 , , 2", "", "99999999999"}) {
    expect_error({"logits", "--model", kTiny, "--tokens", tokens, "--output", output}, "--tokens");
  }
  EXPECT_FALSE(fs::exists(output));
}

TEST(Errors, OutputPathsAreNamedAsGiven) {
  const TempDirectory directory;
  expect_error({"logits", "--model", kTiny, "--tokens", "1", "--output", directory.path().string()},
               directory.path().string() + ": cannot write: is a directory");
  const std::string none = ": cannot write: there is no folder /nowhere";
  expect_error({"logits", "--model", kTiny, "--tokens", "1", "--output", "/nowhere/l.safetensors"},
               "error: /nowhere/l.safetensors" + none);
  expect_error(
      {"generate", "--model", kBase, "--data-out", "/nowhere/d.jsonl", "--temperature", "1"},
      "error: /nowhere/d.jsonl" + none);
  expect_error({"eval", "perplexity", "--model", kBase, "--text", "assets/demo_prompt.txt", "--out",
                "/nowhere/r.json"},
               "error: /nowhere/r.json" + none);
  expect_error(
      {"eval", "suite", "--model", kBase, "--kv-dtype", "fp8", "--html", "/nowhere/r.html"},
      "error: /nowhere/r.html" + none);
}

TEST(Errors, ValuesThatDoNotFitTheirFlags) {
  const TempDirectory directory;
  expect_error({"generate", "--model", kBase, "--max-tokens", "x"},
               "--max-tokens x: expected a number (see winnow generate --help)");
  for (const char* value : {"1.5", "99999999999"}) {
    expect_error({"generate", "--model", kBase, "--max-tokens", value},
                 std::string("--max-tokens ") + value + ": expected a whole number in range");
  }
  expect_generate_error(kBase, {"--seed", "1", "--seed", "2"},
                        "--seed: given 2 times, expected once");
  expect_generate_error(kBase, {"--seed"}, "--seed: the value is missing");
  expect_generate_error(kBase, {"--rope-yarn", "0"}, "--rope-yarn 0: expected 1 or more");
  expect_generate_error(kBase, {"--rope-context", "0"}, "--rope-context 0: expected 1 or more");
  const std::string absent = directory.file("absent");
  expect_error({"generate", "--model", kBase, "--prompt-file", absent},
               absent + ": cannot read: No such file or directory");
  const std::string latin = directory.write("latin1.txt", "caf\xE9 au lait");
  expect_error({"generate", "--model", kBase, "--prompt-file", latin},
               "--prompt-file " + latin + ": is no text in UTF-8");
  expect_error({"demo", "--prompt-file", latin},
               "--prompt-file " + latin + ": is no text in UTF-8");
  const std::string file = directory.write("file", "");
  expect_error({"man-pages", file}, file + ": cannot create: Not a directory");
  const std::string config = directory.write("config.json", R"({"steps": "x"})");
  expect_error({"train", "--config", config}, config + ": steps: --steps x: expected a number");
}

TEST(Errors, HintsAtWhatIsMeant) {
  expect_generate_error(kBase, {"--cr", "4"},
                        "a dense cache keeps everything; --cache h2o --cr 4 compresses any model");
  expect_generate_error(kRetrofitted, {"--cr", "4"}, "was fixed by training: leave out --cr");
  expect_generate_error(kBase, {"--kv-dtype", "q8_0"}, "(is int8 meant?)");
  expect_generate_error(kBase, {"--weights", "q4"}, "(is int4 meant?)");
  expect_generate_error(kBase, {"--weights", "bf16"}, "(is auto, which keeps a bf16 model in bf16");
  expect_error({"generate", "--model", kBase, "--prompt", "x", "--max-tokens", "5000"},
               "more than the model's 4096 positions: at most 409");
}

TEST(Errors, MisspeltPathsShowWhatTheFolderHas) {
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  expect_error({"inspect", "assets/bas"}, "; assets has base, dms-cr8");
  expect_error({"pull", "assets/bas"},
               "assets/bas: HF_HUB_OFFLINE is set, so nothing is "
               "downloaded; pull it on another machine, and copy ");
  ::unsetenv("HF_HUB_OFFLINE");
  expect_error({"inspect", "assets"},
               "assets: no model: it has no config.json; assets has base, dms-cr8");
}

TEST(Errors, ProcessesOfALauncherHearThatTheyAreAlone) {
  ::setenv("RANK", "1", 1);
  ::setenv("WORLD_SIZE", "2", 1);
  const CommandResult result =
      run_winnow({"generate", "--model", kBase, "--prompt", "x", "--max-tokens", "1"});
  ::unsetenv("RANK");
  ::unsetenv("WORLD_SIZE");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err,
              HasSubstr("process 1 of 2 by its launcher: without --tensor-parallel each"));
}

TEST(Errors, ShapesLargerThanTheMachine) {
  const auto machine = nlohmann::json::parse(run_winnow({"doctor", "--json"}).out);
  if (machine.at("memory_bytes") > 141'000'000'000) {
    GTEST_SKIP() << "llama-3.1-70b fits into this machine's memory";
  }
  expect_error({"bench", "--shape", "llama-3.1-70b"},
               "--shape llama-3.1-70b: the weights take 131 GiB, this process may use ");
}

// Refused before the text is read.
TEST(Errors, RulesThatDoNotTellWhatTheyKept) {
  expect_error({"eval", "profile", "--model", kBase, "--text", "assets/demo_prompt.txt", "--cache",
                "tova", "--cr", "4", "--html", "page.html"},
               "--html: --cache tova does not tell what it kept, as dense, dms and dmc do");
  EXPECT_FALSE(fs::exists("page.html"));
}

TEST(Errors, AFullCacheIsNoSuccess) {
  const Words words{"generate",      "--model",      kRetrofitted, "--cache",
                    "dense",         "--kv-gib",     "0.0002",     "--prompt",
                    "One two three", "--max-tokens", "200",        "--ignore-eos"};
  const CommandResult result = run_winnow(words);
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.out, "") << "what was generated is shown";
  EXPECT_THAT(result.err, HasSubstr("--kv-gib"));
}

// The exit code of the binary in a exit_of.
int exit_of(const std::string& arguments) {
  const std::string command = fmt::format("{} {}", WINNOW_BINARY, arguments);
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Errors, NobodyReadsTheOutputs) {
  const std::string model = std::string(WINNOW_SOURCE_DIR) + "/" + kBase;
  const std::string generate = "generate --prompt hi --max-tokens 2 --model " + model;
  EXPECT_EQ(exit_of(generate + " >/dev/null 2>&-"), 0);
  EXPECT_EQ(exit_of(generate + " >/dev/null 2>/dev/full"), 0);
  EXPECT_EQ(exit_of("generate --prompt hi --model /nowhere 2>&-"), 1);
  EXPECT_EQ(exit_of(generate + " >/dev/full 2>/dev/null"), 1);
  EXPECT_EQ(exit_of("--help >/dev/full 2>/dev/null"), 1);
}

TEST(Errors, ATruncatedCheckpoint) {
  const TempDirectory directory;
  fs::copy(fs::path(WINNOW_SOURCE_DIR) / kTiny, directory.path() / "cut");
  const fs::path weights = directory.path() / "cut/model.safetensors";
  const auto size = fs::file_size(weights);
  for (const auto rest : {size - 1, size / 2, decltype(size){20}, decltype(size){0}}) {
    fs::resize_file(weights, rest);
    expect_error({"logits", "--model", directory.file("cut"), "--tokens", "1", "--output",
                  directory.file("out.safetensors")},
                 "model.safetensors");
  }
  EXPECT_FALSE(fs::exists(directory.file("out.safetensors")));
}

class FailedLogits : public ::testing::Test {
 protected:
  void expect_nothing_left(const Words& more, const std::string& names) const {
    Words words{"logits", "--model", kTiny, "--output", directory_.file("out.safetensors")};
    words.insert(words.end(), more.begin(), more.end());
    expect_error(words, names);
    EXPECT_TRUE(fs::is_empty(directory_.path()));
  }
  TempDirectory directory_;
};

TEST_F(FailedLogits, LeaveNothingBehind) {
  expect_nothing_left({"--tokens", "1,500"}, "500");
  expect_nothing_left({"--tokens", "1,two"}, "--tokens");
  expect_nothing_left({"--tokens", "-1"}, "");
  expect_nothing_left({"--tokens-file", "/dev/null"}, "");
  expect_nothing_left({"--tokens", "1", "--total-tokens", "0"}, "--total-tokens 0");
  expect_nothing_left({}, "--tokens");
}

TEST_F(FailedLogits, CannotWriteIntoAMissingDirectory) {
  expect_error({"logits", "--model", kTiny, "--tokens", "1", "--output",
                directory_.file("absent/out.safetensors")},
               "absent/out.safetensors");
  EXPECT_TRUE(fs::is_empty(directory_.path()));
}

const Words kLong{"generate",     "--model", kRetrofitted,   "--prompt",  "Once upon a time",
                  "--max-tokens", "4000",    "--ignore-eos", "--threads", "1"};

TEST(Interrupt, EndsTheTextThatIsBeingWritten) {
  Command command(kLong);
  command.await_output();
  command.send(SIGINT);
  const CommandResult result = command.wait();
  EXPECT_EQ(result.code, 130) << result.err;
  EXPECT_TRUE(result.out.ends_with("\n"));
  EXPECT_THAT(result.err, HasSubstr("dms cache"));
}

TEST(Interrupt, StillGivesValidJson) {
  Words words = kLong;
  words.push_back("--json");
  CommandResult result;
  for (int pause = 100; pause < 5000 && result.out.empty(); pause *= 3) {  // until it has loaded
    Command command(words);
    command.await_handler(SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    command.send(SIGINT);
    result = command.wait();
    EXPECT_EQ(result.code, 130) << result.err;
  }
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json.at("finish_reason"), "cancelled");
  EXPECT_LT(json.at("token_ids").size(), 4000U);
}

}  // namespace
}  // namespace winnow::testing
