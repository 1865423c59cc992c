// winnow tokenize-data, train and retrofit as a user runs them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "cli/run_command.h"

namespace winnow::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Words = std::vector<std::string>;

constexpr const char* kTokenizer = "assets/base";

// A shape small enough to train in a test, and a text.
class Training : public ::testing::Test {
 protected:
  Training() {
    const fs::path source = fs::path(WINNOW_SOURCE_DIR) / kTokenizer;
    fs::create_directory(directory_.path() / "shape");
    fs::copy(source / "tokenizer.json", directory_.path() / "shape");
    fs::copy(source / "tokenizer_config.json", directory_.path() / "shape");
    json config = json::parse(read_text(source / "config.json"));
    config.update(json{{"hidden_size", 32},
                       {"intermediate_size", 48},
                       {"num_hidden_layers", 2},
                       {"num_attention_heads", 4},
                       {"head_dim", 8},
                       {"torch_dtype", "float32"}});
    write("shape/config.json", config.dump());
    std::string lines;
    for (int i = 0; i < 60; ++i) {
      lines += json{{"text", fmt::format("Number {} is followed by {}.", i, i + 1)}}.dump() + "\n";
    }
    write("data.jsonl", lines);
  }

  [[nodiscard]] std::string file(const std::string& name) const { return directory_.file(name); }
  void write(const std::string& name, const std::string& text) const {
    static_cast<void>(directory_.write(name, text));
  }

  [[nodiscard]] Words train(const std::string& out, const Words& more = {}) const {
    return with({"train", "--init", file("shape"), "--out", file(out)}, more);
  }
  [[nodiscard]] Words retrofit(const std::string& base, const std::string& out,
                               const Words& more = {}) const {
    return with({"retrofit", "--model", file(base), "--out", file(out), "--target-cr", "2",
                 "--decision-lr", "1e-3"},
                more);
  }
  [[nodiscard]] Words with(Words words, const Words& more = {}) const {
    const Words common{
        "--data", file("data.jsonl"), "--length", "32",      "--batch", "2", "--threads",
        "1",      "--steps",          "4",        "--dtype", "fp32"};
    for (std::size_t i = 0; i < common.size(); i += 2) {
      if (std::ranges::find(more, common[i]) == more.end()) {
        words.insert(words.end(), {common[i], common[i + 1]});
      }
    }
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  [[nodiscard]] std::vector<json> metrics(const std::string& out) const {
    std::vector<json> lines;
    std::ifstream stream(file(out + "/training/metrics.jsonl"));
    for (std::string line; std::getline(stream, line);) {
      if (json::accept(line)) {  // a line may be incomplete
        lines.push_back(json::parse(line));
      }
    }
    return lines;
  }
  /// Waits until a running command has done some steps; at most a minute.
  void await_steps(const std::string& out, std::size_t steps) const {
    for (int i = 0; i < 6000 && metrics(out).size() < steps; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  // Runs a command that writes to `out` and ends it by a signal after some steps. A busy machine
  // may notice them too late, so it tries again.
  CommandResult interrupt(const Words& words, const std::string& out, std::size_t steps,
                          int signal) const {
    for (int attempt = 0; attempt < 10; ++attempt) {
      fs::remove_all(file(out));
      Command command(words);
      if (signal != SIGKILL) {
        command.await_handler(signal);
      }
      await_steps(out, steps);
      command.send(signal);
      CommandResult result = command.wait();
      if (result.code != 0) {
        return result;
      }
    }
    ADD_FAILURE() << "the run was faster than ten signals";
    return {};
  }
  static CommandResult succeed(const Words& words) {
    CommandResult result = run_winnow(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return result;
  }
  static void expect_error(const Words& words, const std::string& names) {
    const CommandResult result = run_winnow(words);
    EXPECT_EQ(result.code, 1) << result.err;
    EXPECT_THAT(result.err, AllOf(StartsWith("winnow: error: "), HasSubstr(names)));
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  }

  TempDirectory directory_;
};

TEST_F(Training, WritesItsOwnDataAndSaysHowFast) {
  const CommandResult result =
      run_winnow({"generate", "--model", kTokenizer, "--data-out", file("own.jsonl"), "--documents",
                  "3", "--temperature", "1", "--max-tokens", "5"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("own.jsonl: 3 documents; "), HasSubstr(" tokens, "),
                                HasSubstr(" tok/s\n")));
}

TEST_F(Training, GoesOnWithItsOwnDataAfterAnySignal) {
  Words words{"generate", "--model",         kTokenizer,   "--documents",    "150", "--temperature",
              "1",        "--seed",          "5",          "--max-tokens",   "40",  "--threads",
              "1",        "--deterministic", "--data-out", file("own.jsonl")};
  succeed(words);
  const std::string expected = read_text(file("own.jsonl"));
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    fs::remove(file("own.jsonl"));
    {
      Command command(words);
      while (read_text(file("own.jsonl")).empty()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      const CommandResult second = run_winnow(words);  // while the first runs
      command.send(signal);
      const CommandResult first = command.wait();
      EXPECT_EQ(first.code, 128 + signal) << first.err;
      EXPECT_EQ(second.code, 1) << second.err;
      EXPECT_THAT(second.err, HasSubstr("own.jsonl: another run is writing it"));
    }
    EXPECT_LT(read_text(file("own.jsonl")).size(), expected.size());
    const CommandResult result = succeed(words);
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("own.jsonl: 150 documents, "), HasSubstr(" by earlier runs; ")));
    EXPECT_EQ(read_text(file("own.jsonl")), expected);
  }
  words.insert(words.end(), {"--top-k", "7"});
  expect_error(words, "own.jsonl.journal: holds another run, whose top_k is 0 and not 7");
}

TEST_F(Training, FromNothingToACompressedModelThatGenerates) {
  succeed(train("base", {"--save-dtype", "fp32"}));
  for (const std::string kind : {"borrowed", "adapter", "dmc"}) {
    const std::string out = "model-" + kind;
    const Words with_kind =
        kind == "dmc" ? Words{"--method", "dmc"} : Words{"--window", "4", "--decisions", kind};
    Words words = retrofit("base", out, {"--valid", file("data.jsonl")});
    words.insert(words.end(), with_kind.begin(), with_kind.end());
    const CommandResult result = succeed(words);
    EXPECT_THAT(result.err, AllOf(HasSubstr("step 4/4"), HasSubstr("KLD")));
    EXPECT_THAT(result.out, HasSubstr("the model after 4 steps; CR "));
    EXPECT_THAT(
        result.out,
        HasSubstr(kind == "dmc" ? " of the target 2.00: missed; more --steps come closer\n"
                                : " of the 1.78 that the target 2.00 allows in 32 tokens "
                                  "with a window of 4: missed; more --steps come closer\n"));
    EXPECT_THAT(read_text(file(out + "/training/curves.html")),
                AllOf(HasSubstr("<polyline"), HasSubstr("layer 1"), HasSubstr("held out")));
    const auto lines = metrics(out);
    ASSERT_EQ(lines.size(), 6U);  // four steps between two measurements on held-out data
    EXPECT_EQ(lines[0].at("held_out").at("compression_ratio"), 1.0);
    EXPECT_LT(lines[1].at("loss"), 1e-2);
    EXPECT_EQ(lines[4].at("evicted_per_head").size(), 4U);
    EXPECT_TRUE(lines[5].at("held_out").contains("kld"));

    const CommandResult text = succeed({"generate", "--model", file(out), "--prompt", "Number",
                                        "--max-tokens", "4", "--json", "--ignore-eos"});
    EXPECT_EQ(json::parse(text.out).at("token_ids").size(), 4U);
    const CommandResult inspected = succeed({"inspect", file(out)});
    EXPECT_THAT(inspected.out, HasSubstr(kind));
  }
}

TEST_F(Training, WritesTheConventionsOfOthers) {
  succeed(train("base"));
  succeed(retrofit("base", "nvidia", {"--window", "4", "--decisions", "adapter"}));
  const json nvidia = json::parse(read_text(file("nvidia/config.json")));
  EXPECT_EQ(nvidia.at("architectures"), json{"LlamaForCausalLMDMS"});
  EXPECT_EQ(nvidia.at("dms_separate_alpha"), true);
  EXPECT_FALSE(fs::exists(file("nvidia/dms_metadata.json")));
  succeed(retrofit("base", "shisa",
                   {"--window", "4", "--shift", "0", "--keep-after-rope", "--final-offset", "6"}));
  const json shisa = json::parse(read_text(file("shisa/dms_metadata.json")));
  EXPECT_EQ(shisa.at("window_size"), 4);
  EXPECT_EQ(shisa.at("alpha_offset"), 6.0);
  EXPECT_EQ(shisa.at("target_cr"), 2);
}

TEST_F(Training, FewerHeadsAreTrainedOn) {
  succeed(train("base"));
  succeed(with({"train", "--model", file("base"), "--kv-heads", "1", "--out", file("grouped")}));
  const json config = json::parse(read_text(file("grouped/config.json")));
  EXPECT_EQ(config.at("num_key_value_heads"), 1);
  EXPECT_EQ(metrics("grouped").size(), 4U);
  expect_error(with({"train", "--model", file("base"), "--kv-heads", "5", "--out", file("x")}),
               "--kv-heads 5");
}

TEST_F(Training, TokenisedDataGivesTheSame) {
  succeed(train("direct"));
  succeed({"tokenize-data", "--model", file("shape"), "--data", file("data.jsonl"), "--out",
           file("tokens")});
  succeed(train("indirect", {"--data", file("tokens")}));
  EXPECT_EQ(metrics("direct")[3].at("loss"), metrics("indirect")[3].at("loss"));
}

TEST_F(Training, KeysWithoutEffectAreNamed) {
  write("odd.jsonl", json{{"text", std::string(400, 'a')}, {"id", 7}, {"wieght", 2}}.dump() + "\n");
  const CommandResult result = succeed({"tokenize-data", "--model", file("shape"), "--data",
                                        file("odd.jsonl"), "--out", file("odd")});
  EXPECT_THAT(result.err, HasSubstr("ignored in the lines: \"id\", \"wieght\"\n"));
}

TEST_F(Training, AConfigFileIsFlags) {
  write("run.json",
        json{{"steps", 3}, {"lr", 0.01}, {"activations", "keep"}, {"data", {file("data.jsonl")}}}
            .dump());
  const Words words{"train",    "--init",         file("shape"), "--out", file("out"),
                    "--config", file("run.json"), "--length",    "32",    "--batch",
                    "2",        "--lr",           "0.02"};
  succeed(words);
  const auto lines = metrics("out");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].at("lr"), 0.02 / 100.0);  // the command line has priority; warming up
  write("bad.json", "{\"stops\": 3}");
  expect_error(train("x", {"--config", file("bad.json")}), "bad.json: stops: train has no such");
  write("bad.json", "{\"clip\": [[1]]}");
  expect_error(train("x", {"--config", file("bad.json")}), "bad.json: clip: expected a number");
  write("bad.json", "{\"clip\": \"much\"}");
  expect_error(train("x", {"--config", file("bad.json")}), "bad.json: clip");
}

TEST_F(Training, ATargetCountsOnlyOutsideTheWindow) {
  succeed(train("base"));
  const CommandResult result =
      succeed(retrofit("base", "out", {"--valid", file("data.jsonl"), "--window", "31"}));
  EXPECT_THAT(result.out, HasSubstr("; CR 1.00 of the 1.02 that the target 2.00 allows in 32 "
                                    "tokens with a window of 31: reached\n"));
}

TEST_F(Training, ADryRunCountsAndRefuses) {
  const CommandResult result = succeed(train("out", {"--dry-run"}));
  EXPECT_THAT(result.out, Not(HasSubstr("--valid")));
  EXPECT_THAT(succeed(train("out", {"--dry-run", "--valid", "held-out.jsonl"})).out,
              HasSubstr("beside it --valid takes, up to"));
  EXPECT_THAT(result.out, AllOf(HasSubstr("trained                                   277,664"),
                                HasSubstr("moments, fp32"), HasSubstr("memory available")));
  EXPECT_THAT(result.out, HasSubstr("tokens of a step                               64\n"
                                    "tokens of 4 steps                             256\n"));
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("work of all steps, in PFLOP "), HasSubstr("hours at least, at "),
                    HasSubstr("  products alone, measured here and now; ")));
  EXPECT_FALSE(fs::exists(file("out")));
  const CommandResult large =
      run_winnow(train("out", {"--dry-run", "--batch", "100000000", "--micro-batch", "100000000"}));
  EXPECT_EQ(large.code, 1);
  EXPECT_THAT(large.err, HasSubstr("GiB are available"));
  EXPECT_FALSE(fs::exists(file("out")));
}

TEST_F(Training, ADryRunPlansForMemoryThatIsNotHere) {
  const auto plan = [this](const char* gib) {
    return run_winnow(train("out", {"--dry-run", "--memory-gib", gib}));
  };
  const CommandResult fits = plan("24");
  EXPECT_EQ(fits.code, 0) << fits.err;
  EXPECT_THAT(fits.out, HasSubstr("memory available                         24.0 GiB\n"));
  EXPECT_THAT(fits.out, HasSubstr("hours, if the CPUs do 1 TFLOP/s "));
  const CommandResult small = plan("0.03125");
  EXPECT_EQ(small.code, 1);
  EXPECT_THAT(small.err, HasSubstr("0.03 GiB are available"));
  EXPECT_THAT(plan("-1").err, HasSubstr("--memory-gib -1: expected 0 to "));
  expect_error(train("out", {"--memory-gib", "24"}), "--memory-gib goes with --dry-run only");
}

TEST_F(Training, ADryRunPlansForADeviceThatIsNotHere) {
  const auto plan = [this](const char* gib) {
    return run_winnow(
        train("out", {"--dry-run", "--device", "cuda", "--dtype", "bf16", "--memory-gib", gib}));
  };
  const CommandResult large = plan("24");
  EXPECT_EQ(large.code, 0) << large.err;
  EXPECT_THAT(large.out, AllOf(HasSubstr("cuBLAS, kernels, graphs"), HasSubstr("activations, kept"),
                               HasSubstr("memory available                         24.0 GiB\n")));
  EXPECT_THAT(plan("0.65").out, HasSubstr("activations, recomputed"));
}

// Plans of shapes whose runs were measured on GPUs (docs/retrofit-your-model.md), which took 0.5
// to 0.6 GiB less.
TEST_F(Training, PlansForDevicesStayNearWhatRunsTook) {
  const json llama{{"model_type", "llama"},
                   {"hidden_size", 2048},
                   {"intermediate_size", 8192},
                   {"num_hidden_layers", 16},
                   {"num_attention_heads", 32},
                   {"num_key_value_heads", 8},
                   {"head_dim", 64},
                   {"vocab_size", 128256},
                   {"tie_word_embeddings", true},
                   {"max_position_embeddings", 131072},
                   {"rms_norm_eps", 1e-5},
                   {"rope_theta", 500000.0},
                   {"torch_dtype", "bfloat16"}};
  write("config.json", llama.dump());
  const auto plan = [this](const Words& more) {
    Words words{"retrofit",      "--model",  directory_.path().string(),
                "--dry-run",     "--device", "cuda",
                "--memory-gib",  "141",      "--length",
                "4096",          "--batch",  "16",
                "--micro-batch", "4"};
    words.insert(words.end(), more.begin(), more.end());
    return succeed(words).out;
  };
  EXPECT_THAT(plan({}), HasSubstr("memory needed, about                     44.9 GiB\n"));
  EXPECT_THAT(plan({"--activations", "recompute"}),
              HasSubstr("memory needed, about                     31.2 GiB\n"));
}

TEST_F(Training, ADryRunWritesPlainNumbers) {
  const auto hours = [this](const char* steps) {
    return succeed(train("out", {"--dry-run", "--memory-gib", "24", "--steps", steps})).out;
  };
  EXPECT_THAT(hours("1"), Not(ContainsRegex("[0-9]e[-+]")));
  const std::string years = hours("30000000000");
  EXPECT_THAT(years, Not(ContainsRegex("[0-9]e[-+]")));
  EXPECT_THAT(years, ContainsRegex("do 1 TFLOP/s +[0-9,]+ .[0-9,]+ days"));
}

TEST_F(Training, CtrlCWritesACheckpointThatGoesOn) {
  const Words more{"--steps", "60", "--save-every", "0"};
  succeed(train("whole", more));
  const CommandResult stopped = interrupt(train("parts", more), "parts", 5, SIGINT);
  EXPECT_EQ(stopped.code, 130);
  EXPECT_THAT(stopped.err, HasSubstr("--resume goes on"));
  expect_error(train("parts", more), "--resume goes on with it");
  Words other = more;
  other.insert(other.end(), {"--resume", "--lr", "0.5"});
  expect_error(train("parts", other), "lr");
  Words again = more;
  again.emplace_back("--resume");
  succeed(train("parts", again));
  const auto expected = metrics("whole");
  const auto actual = metrics("parts");
  ASSERT_EQ(actual.size(), 60U);
  for (std::size_t i = 0; i < 60; ++i) {
    EXPECT_EQ(actual[i].at("loss"), expected[i].at("loss")) << i;
  }
  EXPECT_EQ(read_text(file("parts/model.safetensors")), read_text(file("whole/model.safetensors")));
}

// A terminal that closes, and a service manager, lose nothing either.
TEST_F(Training, OtherSignalsWriteACheckpoint) {
  const Words more{"--steps", "60", "--save-every", "0"};
  for (const int signal : {SIGTERM, SIGHUP}) {
    const CommandResult stopped = interrupt(train("parts", more), "parts", 5, signal);
    EXPECT_EQ(stopped.code, 128 + signal);
    EXPECT_THAT(stopped.err, HasSubstr("--resume goes on"));
    EXPECT_TRUE(fs::exists(file("parts/training/state.safetensors")));
  }
}

TEST_F(Training, OneRunWritesToAFolder) {
  const Words more{"--steps", "1000000", "--save-every", "1"};
  Command running(train("parts", more));
  await_steps("parts", 3);
  Words again = more;
  again.emplace_back("--resume");
  expect_error(train("parts", again), "parts/training: another process is writing there");
  const std::size_t before = metrics("parts").size();
  await_steps("parts", before + 3);  // it goes on
  running.send(SIGINT);
  EXPECT_EQ(running.wait().code, 130);
}

TEST_F(Training, OtherDataIsRefusedBeforeItReplacesTheRuns) {
  succeed(train("parts", {}));
  const std::string tokens = read_text(file("parts/training/data/manifest.json"));
  write("other.jsonl", "{\"text\": \"Something else.\"}\n");
  expect_error(train("parts", {"--data", file("other.jsonl"), "--resume"}), "training data");
  EXPECT_EQ(read_text(file("parts/training/data/manifest.json")), tokens);
}

TEST_F(Training, KilledGoesOnFromTheLastCheckpoint) {
  const Words more{"--steps", "60", "--save-every", "7"};
  succeed(train("whole", more));
  interrupt(train("parts", more), "parts", 10, SIGKILL);
  Words again = more;
  again.emplace_back("--resume");
  const CommandResult resumed = succeed(train("parts", again));
  EXPECT_THAT(resumed.err, ::testing::Not(HasSubstr("step 1/60")));
  EXPECT_EQ(read_text(file("parts/model.safetensors")), read_text(file("whole/model.safetensors")));
  EXPECT_EQ(metrics("parts").size(), 60U);
}

TEST_F(Training, OverRanksGivesTheSame) {
  const auto run = [this](const std::string& out, const std::string& ranks, bool resume,
                          const std::string& stage = "1") {
    Words more{"--batch",  "6", "--steps",         "20",  "--save-every", "7",  "--lr", "0.01",
               "--warmup", "2", "--data-parallel", ranks, "--zero-stage", stage};
    if (resume) {
      more.emplace_back("--resume");
    }
    return train(out, more);
  };
  const auto expect_same_losses = [this](const std::string& out) {
    const auto expected = metrics("one");
    const auto actual = metrics(out);
    ASSERT_EQ(actual.size(), 20U);
    for (std::size_t i = 0; i < actual.size(); ++i) {
      EXPECT_NEAR(actual[i].at("loss"), expected[i].at("loss"), 1e-3) << i;
      EXPECT_EQ(actual[i].at("tokens"), expected[i].at("tokens"));
    }
  };
  succeed(run("one", "1", false));
  EXPECT_LT(metrics("one").back().at("loss"),
            0.8 * metrics("one").front().at("loss").get<double>());
  succeed(run("three", "3", false));
  expect_same_losses("three");
  succeed(retrofit("three", "cr2",
                   {"--data-parallel", "2", "--window", "4", "--valid", file("data.jsonl")}));
  EXPECT_TRUE(metrics("cr2").back().at("held_out").contains("kld"));
  // Killed, and resumed by another number of ranks.
  interrupt(run("parts", "3", false), "parts", 9, SIGKILL);
  succeed(run("parts", "2", true, "3"));
  expect_same_losses("parts");
  interrupt(run("sharded", "2", false, "3"), "sharded", 9, SIGKILL);
  succeed(run("sharded", "3", true));
  expect_same_losses("sharded");
}

TEST_F(Training, RanksAreCountedAndPlanned) {
  expect_error(train("x", {"--data-parallel", "3"}), "--data-parallel 3: expected 1 to 2");
  expect_error(train("x", {"--data-parallel", "0"}), "--data-parallel 0: expected 1 to 2");
  const CommandResult plan = succeed(train("x", {"--dry-run", "--data-parallel", "2"}));
  EXPECT_THAT(plan.out, AllOf(HasSubstr("a rank's moments, fp32"),
                              HasSubstr("of each of 2 ranks, about"), HasSubstr("memory needed"),
                              HasSubstr("on each of 2 GPUs, without activations")));
  const CommandResult sharded =
      succeed(train("x", {"--dry-run", "--data-parallel", "2", "--zero-stage", "3"}));
  EXPECT_THAT(sharded.out, AllOf(HasSubstr("a rank's weights, fp32"),
                                 HasSubstr("what is whole at a time, fp32")));
  expect_error(train("x", {"--zero-stage", "2"}), "--zero-stage 2: expected 1 or 3");
  expect_error(train("x", {"--zero-stage", "3", "--device", "cuda", "--optimizer", "muon"}),
               "--zero-stage 3 with --device cuda and --optimizer muon: only CPU ranks have both");
}

TEST_F(Training, PreTrainsWithMuonAndFarDropout) {
  succeed(train("base", {"--optimizer", "muon", "--far-dropout", "0.9", "--far-mixed", "0.1",
                         "--far-window", "8", "--far-heads", "0:1,1:0"}));
  expect_error(train("x", {"--far-dropout", "0.9", "--far-heads", "0-1"}), "--far-heads 0-1");
  expect_error(train("x", {"--far-dropout", "0.9", "--far-window", "8", "--far-heads", "0:9"}),
               "--far-heads 0:9");
  expect_error(train("x", {"--far-mixed", "0.1"}), "--far-mixed 0.1");
  expect_error(train("x", {"--optimizer", "sgd"}), "--optimizer sgd: expected muon or adamw");
}

TEST_F(Training, DmcAblationsAreFlags) {
  succeed(train("base"));
  const auto dmc = [this](const std::string& out, const Words& more) {
    return with({"retrofit", "--model", file("base"), "--out", file(out), "--method", "dmc"}, more);
  };
  succeed(dmc("pooled", {"--target-cr", "3", "--fixed-pooling", "--uniform-weights"}));
  EXPECT_EQ(json::parse(read_text(file("pooled/config.json"))).at("dmc_fixed_pooling"), 3);
  succeed({"generate", "--model", file("pooled"), "--prompt", "Number", "--max-tokens", "9"});
  succeed(dmc("hard", {"--per", "layer", "--spread-weight", "1"}));
  EXPECT_EQ(json::parse(read_text(file("hard/config.json"))).at("dmc_alpha_per"), "layer");
  expect_error(dmc("x", {"--target-cr", "2.5", "--fixed-pooling"}),
               "--target-cr 2.5: with --fixed");
  expect_error(retrofit("base", "x", {"--fixed-pooling"}), "--fixed-pooling: --method dms");
}

// None of these flags would change anything.
TEST_F(Training, RefusesFlagsWithoutEffect) {
  const auto refused = [&](const Words& more, const std::string& names) {
    expect_error(retrofit("shape", "x", more), names);
  };
  refused({"--decisions", "adapter", "--channel", "3"}, "--channel: an adapter borrows no channel");
  refused({"--decisions", "adapter", "--keep-after-rope"}, "--keep-after-rope: an adapter");
  refused({"--momentum", "0.9"}, "--momentum: goes with --optimizer muon only");
  refused({"--merge-span", "8"}, "--merge-span: --method dms has no such thing");
  refused({"--uniform-weights"}, "--uniform-weights: --method dms has no such thing");
  refused({"--loss", "one-sided", "--price-gain", "1"}, "--price-gain: --loss one-sided");
  refused({"--shortfall-weight", "1"}, "--shortfall-weight: goes with --loss one-sided only");
  refused({"--eviction", "immediate", "--window", "4", "--shift", "0"}, "--shift: --eviction");
  refused({"--ramp-steps", "5"}, "--ramp-steps 5: expected at most 4, the --steps");
  refused({"--warmup", "10"}, "--warmup 10: expected at most 4, the --steps");
  EXPECT_FALSE(fs::exists(file("x")));
}

TEST_F(Training, ChecksFlagsBeforeItReadsData) {
  fs::create_directory(file("folder"));
  const auto refused = [&](const Words& more, const std::string& names) {
    expect_error(train("x", more), names);
    EXPECT_FALSE(fs::exists(file("x"))) << names;
  };
  refused({"--save-dtype", "int8"}, "--save-dtype int8");
  refused({"--dtype", "fp4"}, "--dtype fp4: expected bf16, fp32 or fp8");
  refused({"--dtype", "fp8"}, "--dtype fp8: runs on a CUDA device only");
  refused({"--valid", file("nope")}, "--valid " + file("nope") + ": there is no such file");
  refused({"--data", file("folder"), file("data.jsonl")},
          "--data " + file("folder") + ": a folder that tokenize-data made stands alone");
}

TEST_F(Training, MalformedDataLeavesNoFolder) {
  write("bad.jsonl", "no JSON\n");
  const auto tokenize = [&](const std::string& data) {
    expect_error(
        {"tokenize-data", "--model", file("shape"), "--data", file(data), "--out", file("tokens")},
        data);
  };
  tokenize("bad.jsonl");
  tokenize("absent.jsonl");
  EXPECT_FALSE(fs::exists(file("tokens")));
  fs::create_directory(file("tokens"));
  tokenize("bad.jsonl");
  EXPECT_TRUE(fs::exists(file("tokens"))) << "it was there before";
}

TEST_F(Training, SaysWhatIsWrong) {
  expect_error({"train"}, "--model or --init");
  expect_error({"retrofit"}, "--model");
  expect_error({"train", "--init", file("shape")}, "--out");
  expect_error({"train", "--init", file("shape"), "--out", file("x")}, "--data");
  expect_error(train("shape"), "--out");
  expect_error(train("x", {"--data", file("absent.jsonl")}), "absent.jsonl");
  expect_error(train("x", {"--steps", "0"}), "--steps 0");
  expect_error(train("x", {"--length", "100000"}), "--length 100000");
  expect_error(train("x", {"--schedule", "zigzag"}), "--schedule zigzag");
  expect_error(train("x", {"--resume"}), "--resume");
  expect_error(train("x", {"--save-every", "-1"}), "--save-every -1");
  expect_error(train("x", {"--keep-at", "5"}), "--keep-at 5");
  expect_error(train("x", {"--eval-every", "-1"}), "--eval-every -1");
  expect_error(train("x", {"--valid-tokens", "-1"}), "--valid-tokens -1");
  expect_error(train("x", {"--threads", "-1"}), "--threads -1");
  expect_error(train("x", {"--max-malformed", "2"}), "--max-malformed 2");
  expect_error(train("x", {"--model", file("shape")}), "exclude");
  json config = json::parse(read_text(file("shape/config.json")));
  succeed({"tokenize-data", "--model", file("shape"), "--data", file("data.jsonl"), "--out",
           file("tokens")});
  config["vocab_size"] = 4000;
  write("shape/config.json", config.dump());
  for (const std::string data : {"data.jsonl", "tokens"}) {
    expect_error(train("small", {"--data", file(data)}),
                 "the tokenizer has 8192 tokens, the model a vocabulary of 4000");
  }
  config["vocab_size"] = 8192;
  write("shape/config.json", config.dump());
  EXPECT_FALSE(fs::exists(file("small")));
  const auto refused = [&](const Words& more, const std::string& names) {
    expect_error(retrofit("shape", "x", more), names);
  };
  refused({"--decisions", "both"}, "--decisions both");
  refused({"--eviction", "soon"}, "--eviction soon");
  refused({"--decisions", "adapter", "--fade-steps", "3"}, "--fade-steps 3");
  refused({"--method", "dmc", "--window", "8"}, "--window: --method dmc");
  refused({"--eviction", "immediate"}, "--window 256: with --eviction immediate expected 1 to 32");
  expect_error(with({"retrofit", "--model", file("shape"), "--out", file("x")},
                    {"--target-cr", "1e9", "--window", "4"}),
               "--target-cr 1000000000: expected a compression ratio from 1 to 1000000");
  refused({"--window", "4"}, "model.safetensors");  // a shape has no weights to retrofit
  const Words again{"retrofit", "--model", "assets/dms-cr8",  "--out",
                    file("x"),  "--data",  file("data.jsonl")};
  expect_error(again, "retrofitted already");
}

}  // namespace
}  // namespace winnow::testing
