// Output of the commands that print text: generate, tokenize, inspect, bench, eval, demo.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <tuple>
#include <vector>

#include "cli/run_command.h"
#include "kvcache/every_rule.h"

namespace winnow::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

// DMS, two full layers and a sliding one.
constexpr const char* kSliding = "tests/fixtures/models/dms-gemma2";

// Tests run in parallel: one thread each.
Words generate_words(const std::string& model, const Words& more) {
  Words words{"generate", "--model", model,       "--prompt", kPrompt,       "--max-tokens",
              "8",        "--json",  "--threads", "1",        "--ignore-eos"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

json generate(const std::string& model, const Words& more = {}) {
  return run_json(generate_words(model, more));
}

int sum(const json& per_layer_head) {
  int total = 0;
  for (const json& layer : per_layer_head) {
    for (const json& head : layer) {
      total += head.get<int>();
    }
  }
  return total;
}

TEST(Generate, ReportsTextCacheAndSpeed) {
  const json result = generate(kRetrofitted);
  EXPECT_FALSE(result.at("text").get<std::string>().empty());
  EXPECT_EQ(result.at("token_ids").size(), 8U);
  EXPECT_EQ(result.at("finish_reason"), "length");
  EXPECT_GT(result.at("prompt_tokens"), 20);
  EXPECT_GT(result.at("prefill_tokens_per_s"), 0.0);
  EXPECT_GT(result.at("decode_tokens_per_s"), 0.0);
  EXPECT_FALSE(result.contains("samples"));

  const json& kv = result.at("kv");
  EXPECT_GT(kv.at("bytes"), 0);
  EXPECT_GT(kv.at("dense_bytes"), 0);
  EXPECT_GE(kv.at("compression_ratio"), 1.0);
  EXPECT_EQ(kv.at("per_layer_head").size(), 8U);
  EXPECT_EQ(kv.at("per_layer_head")[0].size(), 2U);
  EXPECT_EQ(kv.at("live_entries"), sum(kv.at("per_layer_head")));
}

TEST(Generate, TellsTheSpeedOfWhatWasComputed) {
  const auto summary = [](const std::string& prompt, const std::string& tokens) {
    const CommandResult result =
        run_winnow({"generate", "--model", kBase, "--prompt", prompt, "--max-tokens", tokens,
                    "--ignore-eos", "--threads", "1"});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.err;
  };
  EXPECT_THAT(summary(kPrompt, "4"), AllOf(HasSubstr("prefill "), HasSubstr(", decode ")));
  for (const char* tokens : {"1", "4"}) {
    EXPECT_THAT(summary("a", tokens), Not(HasSubstr(" 0.0")));
    EXPECT_THAT(summary(kPrompt, tokens), Not(HasSubstr(" 0.0")));
  }
}

TEST(Generate, CountsADenseCacheExactly) {
  const json result = generate(kBase);
  const json& kv = result.at("kv");
  // The last token was chosen but never fed.
  const int tokens = result.at("prompt_tokens").get<int>() + 7;
  EXPECT_EQ(kv.at("live_entries"), tokens * 8 * 2);
  EXPECT_EQ(kv.at("compression_ratio"), 1.0);
}

TEST(Generate, SamplesContinueTheOnePrompt) {
  const json result = generate(kRetrofitted, {"--n", "3", "--temperature", "1", "--seed", "5"});
  ASSERT_EQ(result.at("samples").size(), 3U);
  EXPECT_EQ(result.at("samples")[0].at("token_ids"), result.at("token_ids"));
  EXPECT_NE(result.at("samples")[0].at("token_ids"), result.at("samples")[1].at("token_ids"));
  EXPECT_NE(result.at("samples")[1].at("token_ids"), result.at("samples")[2].at("token_ids"));
}

TEST(Generate, TheSeedDecides) {
  const auto with_seed = [](const std::string& seed) {
    return generate(kRetrofitted, {"--temperature", "1.5", "--seed", seed}).at("token_ids");
  };
  const json first = with_seed("7");
  EXPECT_EQ(with_seed("7"), first);
  EXPECT_NE(with_seed("8"), first);
}

TEST(Generate, DeterministicDoesNotDependOnChunks) {
  const json whole = generate(kRetrofitted, {"--deterministic"});
  EXPECT_EQ(generate(kRetrofitted, {"--deterministic"}).at("token_ids"), whole.at("token_ids"));
  const json cut = generate(kRetrofitted, {"--deterministic", "--chunk", "5"});
  EXPECT_EQ(cut.at("token_ids"), whole.at("token_ids"));
  EXPECT_EQ(cut.at("kv"), whole.at("kv"));
}

TEST(Generate, AStopStringEndsTheTextBeforeIt) {
  const std::string text = generate(kBase).at("text");
  const std::string stop = text.substr(text.size() / 2, 1);
  const json stopped = generate(kBase, {"--stop", stop});
  EXPECT_EQ(stopped.at("text"), text.substr(0, text.find(stop)));
  EXPECT_EQ(stopped.at("finish_reason"), "stop");
}

TEST(Generate, PrintsTheTextAloneWithoutJson) {
  const Words words{"generate",     "--model", kBase,       "--prompt", kPrompt,
                    "--max-tokens", "8",       "--threads", "1",        "--ignore-eos"};
  const CommandResult result = run_winnow(words);
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, generate(kBase).at("text").get<std::string>() + "\n");
  EXPECT_THAT(result.err, HasSubstr("dense cache"));
}

TEST(Generate, TakesThePromptFromAFileOrStandardInput) {
  const TempDirectory directory;
  const json expected = generate(kBase).at("token_ids");
  Words words{"generate",     "--model",   kBase, "--max-tokens", "8", "--json",
              "--ignore-eos", "--threads", "1",   "--prompt-file"};
  words.push_back(directory.write("prompt.txt", kPrompt));
  EXPECT_EQ(run_json(words).at("token_ids"), expected);
  words.back() = "-";
  EXPECT_EQ(json::parse(run_winnow(words, kPrompt).out).at("token_ids"), expected);
}

class GenerateWithRule : public ::testing::TestWithParam<std::string> {};

TEST_P(GenerateWithRule, KeepsWithinTheRatio) {
  const json result = generate(kBase, {"--cache", GetParam(), "--cr", "4"});
  EXPECT_EQ(result.at("token_ids").size(), 8U);
  const double ratio = result.at("kv").at("compression_ratio");
  const auto& rule = kvcache::traits_of(*kvcache::parse_rule(GetParam()));
  if (rule.keeps_all) {  // it reads less
    EXPECT_EQ(ratio, 1.0);
  } else if (rule.budget_of != kvcache::BudgetOf::answer) {  // the prompt is most of the text
    EXPECT_GE(ratio, 3.0);
    EXPECT_LE(ratio, 6.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, GenerateWithRule, ::testing::ValuesIn(every_baseline_name()),
                         [](const auto& info) { return info.param; });

TEST(GenerateRules, TrainedRulesAndDense) {
  EXPECT_EQ(generate(kRetrofitted, {"--cache", "dms"}).at("kv"), generate(kRetrofitted).at("kv"));
  EXPECT_EQ(generate(kRetrofitted, {"--cache", "dense"}).at("kv").at("compression_ratio"), 1.0);
  const json narrow = generate(kRetrofitted, {"--window", "4"});
  EXPECT_GT(narrow.at("kv").at("compression_ratio"), 1.5);
}

// Outside the window of 64, less than a quarter of the prompt's tokens remains.
TEST(GenerateRules, TrainedRulesWithABudget) {
  const json dms = generate(kRetrofitted);
  const json quest = generate(kRetrofitted, {"--cache", "dms_quest", "--cr", "1"});
  EXPECT_EQ(quest.at("token_ids"), dms.at("token_ids"));
  EXPECT_EQ(quest.at("kv").at("live_entries"), dms.at("kv").at("live_entries"));
  const Words narrow{"--cache", "dms_budget", "--window", "4", "--cr", "4"};
  EXPECT_GE(generate(kRetrofitted, narrow).at("kv").at("compression_ratio"), 4.0);
}

class GenerateWithFormat : public ::testing::TestWithParam<std::string> {};

TEST_P(GenerateWithFormat, StoresEntries) {
  const json bf16 = generate(kRetrofitted);
  const json result = generate(kRetrofitted, {"--kv-dtype", GetParam()});
  EXPECT_EQ(result.at("token_ids").size(), 8U);
  const double relative = result.at("kv").at("dense_bytes").get<double>() /
                          bf16.at("kv").at("dense_bytes").get<double>();
  const std::map<std::string, double> expected = {
      {"bf16", 1.0}, {"fp32", 2.0}, {"fp8", 0.5}, {"int8", 0.5}, {"q4", 0.27}};
  EXPECT_NEAR(relative, expected.at(GetParam()), 0.05);
}

INSTANTIATE_TEST_SUITE_P(Formats, GenerateWithFormat,
                         ::testing::Values("bf16", "fp8", "int8", "q4", "fp32"),
                         [](const auto& info) { return info.param; });

TEST(Tokenize, PrintsIdsThatAnyTextHas) {
  const CommandResult result = run_winnow({"tokenize", "--model", kBase}, "naïve 漢字 🙂\n");
  EXPECT_EQ(result.code, 0) << result.err;
  // Not with GoogleTest's regular expressions: libonig also defines regcomp, with other
  // structures.
  EXPECT_EQ(result.out.find_first_not_of("0123456789 \n"), std::string::npos);
  EXPECT_EQ(result.out.find('\n'), result.out.size() - 1);
  const CommandResult plain =
      run_winnow({"tokenize", "--model", kBase, "--no-special"}, "naïve 漢字 🙂\n");
  EXPECT_EQ("0 " + plain.out, result.out);  // BOS of this model
}

TEST(Tokenize, CountsWhatGenerateFeeds) {
  const CommandResult ids = run_winnow({"tokenize", "--model", kBase}, kPrompt);
  const auto count = std::count(ids.out.begin(), ids.out.end(), ' ') + 1;
  EXPECT_EQ(generate(kBase).at("prompt_tokens"), count);
}

TEST(Tokenize, PrintsThePromptOfAChat) {
  const TempDirectory directory;
  std::ignore = directory.write(
      "tokenizer.json", read_text(std::string(WINNOW_SOURCE_DIR "/") + kBase + "/tokenizer.json"));
  std::ignore = directory.write("tokenizer_config.json", R"({"chat_template": [
    {"name": "default", "template": "{% for m in messages %}{{ m.content }}{{ x }}{% endfor %}"},
    {"name": "tool_use", "template": "{{ tools|length }} tools{{ add_generation_prompt }}"}]})");
  const std::string model = directory.path().string();
  const auto file = [&](const char* name, const std::string& text) {
    return directory.write(name, text);
  };
  const auto rendered = [&](const std::string& text) {
    const CommandResult result = run_winnow(
        {"tokenize", "--model", model, "--messages", file("chat.json", text), "--render"});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  };
  const std::string list = R"([{"role": "user", "content": "hi "}])";
  EXPECT_EQ(rendered(list), "hi ");
  EXPECT_EQ(rendered(R"({"model": "m", "x": "!", "messages": )" + list + "}"), "hi !");
  EXPECT_EQ(rendered(R"({"chat_template_kwargs": {"x": "?"}, "x": "!", "messages": )" + list + "}"),
            "hi ?");
  EXPECT_EQ(rendered(R"({"variables": {"tools": [{}, {}]}, "messages": )" + list + "}"),
            "2 toolsTrue");
  EXPECT_EQ(rendered(R"({"tools": [], "add_generation_prompt": false, "messages": )" + list + "}"),
            "0 toolsFalse");

  const CommandResult tools =
      run_winnow({"tokenize", "--model", model, "--messages", file("chat.json", list), "--tools",
                  file("tools.json", "[{}]"), "--render"});
  EXPECT_EQ(tools.out, "1 toolsTrue") << tools.err;
  const CommandResult ids = run_winnow({"tokenize", "--model", model, "--messages", "-"}, list);
  const CommandResult same = run_winnow({"tokenize", "--model", model, "--no-special"}, "hi ");
  EXPECT_EQ(ids.out, same.out) << ids.err;

  const auto error = [&](const std::string& text) {
    return run_winnow(
               {"tokenize", "--model", model, "--messages", file("chat.json", text), "--render"})
        .err;
  };
  EXPECT_THAT(error("{"), HasSubstr("chat.json: not valid JSON"));
  EXPECT_THAT(error("{}"), HasSubstr("chat.json: expected a list of messages"));
  EXPECT_THAT(error("[3]"), HasSubstr("expected messages that are objects"));
}

TEST(Inspect, ListsArchitectures) {
  const CommandResult result = run_winnow({"inspect", "--architectures"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("\n  LlamaForCausalLM\n"), HasSubstr("\n  qwen3moe\n")));
}

TEST(Inspect, TellsArchitectureRetrofitAndCache) {
  const json dms = run_json({"inspect", "--json", "--memory-gib", "1", kRetrofitted});
  EXPECT_EQ(dms.at("architecture"), "llama");
  EXPECT_EQ(dms.at("layers"), 8);
  EXPECT_EQ(dms.at("kv_heads"), 2);
  EXPECT_EQ(dms.at("retrofit").at("kind"), "dms");
  EXPECT_EQ(dms.at("retrofit").at("window"), 64);
  const json& cache = dms.at("kv_cache");
  EXPECT_EQ(cache.at("dense_bytes_per_1k_tokens"), 1024 * 8 * 2 * 64 * 2 * 2);
  EXPECT_EQ(run_json({"inspect", "--json", "--memory-gib", "1", "--model", kRetrofitted}), dms);
  EXPECT_EQ(run_winnow({"inspect", "--json"}).code, 1);
  const json brief = run_json({"inspect", "--json", "--context", "1024", kRetrofitted});
  EXPECT_EQ(brief.at("memory").at("chat_tokens"), 1024);
  EXPECT_LT(brief.at("memory").at("chat_bytes_dense"), dms.at("memory").at("chat_bytes_dense"));
  const json fp8 = run_json({"inspect", "--json", "--kv-dtype", "fp8", kRetrofitted});
  EXPECT_LT(fp8.at("kv_cache").at("dense_bytes_per_1k_tokens"),
            cache.at("dense_bytes_per_1k_tokens"));
}

TEST(Inspect, RecurrentLayersKeepAState) {
  const json shown = run_json({"inspect", "--json", "tests/fixtures/models/qwen3.5"});
  EXPECT_EQ(shown.at("recurrent").at("layers"), 3);
  EXPECT_EQ(shown.at("recurrent").at("value_heads"), 4);
  const json& cache = shown.at("kv_cache");
  EXPECT_EQ(cache.at("dense_bytes_per_1k_tokens"), 1024 * 2 * 16 * 2) << "one layer of four";
  const int state = 4 * 8 * 6 + 3 * (2 * 2 * 8 + 4 * 6);  // matrices, and the convolution's inputs
  EXPECT_EQ(cache.at("recurrent_state_bytes"), 3 * 4 * state);
}

TEST(Inspect, ConvolutionsKeepTheirLastInputs) {
  const json shown = run_json({"inspect", "--json", "tests/fixtures/models/lfm2"});
  EXPECT_EQ(shown.at("recurrent").at("kind"), "short_conv");
  EXPECT_EQ(shown.at("recurrent").at("layers"), 2);
  const json& cache = shown.at("kv_cache");
  EXPECT_EQ(cache.at("dense_bytes_per_1k_tokens"), 2 * 1024 * 2 * 16 * 2) << "two of four layers";
  EXPECT_EQ(cache.at("recurrent_state_bytes"), 2 * 4 * (3 - 1) * 32);
}

TEST(Inspect, StateSpacesKeepAMatrixForEachHead) {
  const json shown = run_json({"inspect", "--json", "tests/fixtures/models/granite-4"});
  EXPECT_EQ(shown.at("recurrent").at("kind"), "state_space");
  EXPECT_EQ(shown.at("recurrent").at("value_heads"), 4);
  const int state = 4 * 8 * 16 + 3 * (4 * 16 + 2 * 8);
  EXPECT_EQ(shown.at("kv_cache").at("recurrent_state_bytes"), 3 * 4 * state);
}

TEST(Inspect, SlidingLayersDoNotGrow) {
  const json cache = run_json({"inspect", "--json", kSliding}).at("kv_cache");
  const int entry = 2 * 2 * 16 * 2;  // keys and values of 2 heads of 16 channels in bf16
  EXPECT_EQ(cache.at("dense_bytes_per_1k_tokens"), 1024 * 2 * entry) << "two full layers of three";
  EXPECT_EQ(cache.at("sliding_layer_bytes"), 24 * entry);
  EXPECT_EQ(cache.at("window_bytes"), 2 * 7 * entry);
  const CommandResult table = run_winnow({"inspect", kSliding});
  EXPECT_THAT(table.out, HasSubstr("for sliding layers"));
}

TEST(Inspect, LatentsCostWhatTheyAre) {
  constexpr const char* kModel = "tests/fixtures/models/deepseek-v3";
  const json shown = run_json({"inspect", "--json", kModel});
  EXPECT_EQ(shown.at("latent"), 16);
  EXPECT_EQ(shown.at("kv_cache").at("dense_bytes_per_1k_tokens"), 1024 * 2 * (16 + 8) * 2)
      << "two layers, in bf16";
  EXPECT_THAT(run_winnow({"inspect", kModel}).out,
              HasSubstr("4 query heads, one latent of 16 and 8 rotated channels"));
}

TEST(Inspect, SaysWhatARetrofitWouldSave) {
  const CommandResult plain = run_winnow({"inspect", "tests/fixtures/models/llama"});
  EXPECT_THAT(plain.out, HasSubstr("384 KiB per 1K tokens dense"));
  EXPECT_THAT(plain.out, HasSubstr("48.0 KiB per 1K tokens compressed, if retrofitted for 8x"));
  const CommandResult untold = run_winnow({"inspect", "tests/fixtures/models/dms-own"});
  EXPECT_THAT(untold.out, HasSubstr("compressed, if it was trained for 8x"));
}

TEST(Inspect, SaysWhatAModelTakesHere) {
  const CommandResult base = run_winnow({"inspect", kBase});
  EXPECT_THAT(
      base.out,
      HasSubstr("  memory        cache of one chat of 4,096 tokens, all the model's positions: "
                "16.0 MiB; "));
  EXPECT_THAT(base.out, HasSubstr("  weights       auto        27.8 MiB: fits, "));
  EXPECT_THAT(base.out, HasSubstr("                int8        14.7 MiB: fits, "));
  EXPECT_THAT(base.out, Not(HasSubstr("stored as")));
  EXPECT_THAT(base.out, Not(HasSubstr("headers")));
  EXPECT_THAT(base.out, Not(HasSubstr("cannot take texts")));
  const json memory = run_json({"inspect", "--json", kRetrofitted}).at("memory");
  EXPECT_EQ(memory.at("chat_tokens"), 4096) << "all that the model's positions allow";
  const double dense = memory.at("chat_bytes_dense");
  EXPECT_EQ(memory.at("chat_bytes"), dense / 4096 * (65 + (4096 - 65) / 8.0))
      << "trained for 8x beside a window of 64 and the newest token";
  EXPECT_EQ(memory.at("fits"), true);
  EXPECT_TRUE(memory.at("stored_as").is_null());
}

TEST(Inspect, CountsAllTensorsOfAGgufFileByTheirType) {
  constexpr const char* kGguf = "tests/fixtures/gguf/qwen3-next.gguf";
  const json memory = run_json({"inspect", "--json", kGguf}).at("memory");
  const json& stored = memory.at("stored_as");
  EXPECT_EQ(stored.at("types"), (json{"BF16", "F32"}));
  EXPECT_EQ(stored.at("memory_bytes"), memory.at("weight_bytes"));
  EXPECT_EQ(stored.at("file_bytes"), stored.at("type_bytes").at("BF16").get<std::int64_t>() +
                                         stored.at("type_bytes").at("F32").get<std::int64_t>());
  EXPECT_THAT(run_winnow({"inspect", kGguf}).out, HasSubstr("  stored as     BF16 "));
}

TEST(Inspect, SaysThatATokenizerIsMissing) {
  constexpr const char* kWithoutTokenizer = "tests/fixtures/models/llama";
  EXPECT_THAT(run_winnow({"inspect", kWithoutTokenizer}).out,
              HasSubstr("\n  It cannot take texts: tests/fixtures/models/llama: no tokenizer; "));
  EXPECT_THAT(run_json({"inspect", "--json", kWithoutTokenizer}).at("tokenizer_error"),
              HasSubstr("no tokenizer"));
  EXPECT_TRUE(run_json({"inspect", "--json", kBase}).at("tokenizer_error").is_null());
}

TEST(Inspect, PlansForMemoryThatIsNotHere) {
  constexpr double kBytes = 1 << 30;
  const auto inspect = [](const char* gib) {
    return run_json({"inspect", "--json", "--memory-gib", gib, kBase}).at("memory");
  };
  const json small = inspect("0.03125");  // 32 MiB
  EXPECT_EQ(small.at("available_bytes"), kBytes / 32);
  EXPECT_EQ(small.at("fits"), false);
  ASSERT_EQ(small.at("formats").size(), 4);
  for (const json& format : small.at("formats")) {
    const double needed = format.at("weight_bytes").get<double>() +
                          small.at("chat_bytes").get<double>() * 10 / 9;  // as the engine plans
    EXPECT_NEAR(format.at("spare_bytes").get<double>(), kBytes / 32 - needed, 1.0);
    EXPECT_EQ(format.at("fits"), needed <= kBytes / 32) << format;
  }
  EXPECT_EQ(small.at("formats").at(2).at("weights"), "int4");
  EXPECT_EQ(small.at("formats").at(2).at("fits"), true);
  EXPECT_EQ(inspect("1").at("fits"), true);
  const CommandResult table = run_winnow({"inspect", "--memory-gib", "0.03125", kBase});
  EXPECT_THAT(table.out, HasSubstr("; 32.0 MiB available\n"));
  EXPECT_THAT(table.out, HasSubstr("auto        27.8 MiB: too large by "));
  const CommandResult wrong = run_winnow({"inspect", "--memory-gib", "-1", kBase});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("--memory-gib -1: expected 0 to "));
  EXPECT_EQ(run_winnow({"inspect", "--context", "0", kBase}).code, 1);
}

TEST(Inspect, PlansForTheSameContextAsDoctor) {
  const json doctor = run_json({"doctor", "--json", "--memory-gib", "1"});
  for (const char* command : {"inspect", "doctor"}) {
    EXPECT_THAT(run_winnow({command, "--help"}).out,
                HasSubstr(fmt::format("--context N={} ", doctor.at("context").get<int>())));
  }
}

TEST(Bench, RatiosAreOverAllLayers) {
  const Words words{"bench", "--model",  kSliding, "--context", "300", "--generate",
                    "1",     "--repeat", "1",      "--threads", "1",   "--json"};
  const auto with = [&](const char* cr) {
    Words all = words;
    all.insert(all.end(), {"--cr", cr});
    return all;
  };
  EXPECT_NEAR(run_json(with("4")).at("kv").at("compression_ratio").get<double>(), 4.0, 0.4);
  const CommandResult refused = run_winnow(with("50"));
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("--cr 50: expected 1 to 16.42"));  // 624 / (2 * 7 + 24)
}

TEST(Bench, FullLoadServesEveryRequest) {
  const Words words{"bench",      "--model", kSliding,          "--cr", "3",     "--load", "40/20",
                    "--requests", "10",      "--max-sequences", "3",    "--json"};
  const json result = run_json(words);
  EXPECT_EQ(result.at("requests"), 10);
  EXPECT_EQ(result.at("most_running"), 3);
  EXPECT_EQ(result.at("preemptions"), 0);
  EXPECT_NEAR(result.at("output_tokens_per_s").get<double>() * result.at("seconds").get<double>(),
              10 * 20, 1e-6);
  EXPECT_GE(result.at("ms_per_token_p99"), result.at("ms_per_token_p50"));
  const CommandResult refused = run_winnow({"bench", "--model", kSliding, "--load", "40-20"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("--load 40-20: expected two lengths, such as 1000/1000"));
}

// Answers end where the engine does not expect it, so it admits too many and preempts some.
TEST(Bench, FullLoadOfAnswersOfUnknownLengths) {
  Words words{"bench",     "--model",    kSliding, "--cache",  "dense",  "--load",
              "40/20-400", "--requests", "24",     "--kv-gib", "0.0008", "--json"};
  const json computed = run_json(words);
  EXPECT_EQ(computed.at("least_output"), 20);
  EXPECT_EQ(computed.at("output"), 400);
  EXPECT_GT(computed.at("preemptions"), 0);
  EXPECT_FALSE(computed.contains("host"));
  words.insert(words.end(), {"--host-gib", "0.01"});
  const json moved = run_json(words);
  EXPECT_EQ(moved.at("host").at("saved"), moved.at("preemptions"));
  EXPECT_GE(moved.at("host").at("restored"), moved.at("host").at("saved"));
  for (const json& result : {computed, moved}) {
    const double tokens =
        result.at("output_tokens_per_s").get<double>() * result.at("seconds").get<double>();
    EXPECT_GT(tokens, 24 * 20);
    EXPECT_LT(tokens, 24 * 400);
  }
  for (const char* lengths : {"40/0-5", "40/5-4", "40/5-", "40/5-6-7"}) {
    EXPECT_EQ(run_winnow({"bench", "--model", kSliding, "--load", lengths}).code, 1) << lengths;
  }
}

TEST(Bench, APrefixComesFromThreePlaces) {
  for (const char* rule : {"dense", "dms"}) {
    Words words{"bench",  "--model",    kSliding, "--cache",  rule, "--prefix", "300",
                "--json", "--host-gib", "0.05",   "--repeat", "2",  "--kv-gib", "0.05"};
    if (std::string_view(rule) == "dms") {
      words.insert(words.end(), {"--cr", "3"});
    }
    const json result = run_json(words);
    EXPECT_EQ(result.at("prefix"), 300);
    for (const char* place : {"computed", "from_cache", "from_host"}) {
      EXPECT_EQ(result.at("runs").at(place).size(), 2U) << place;
      EXPECT_GT(result.at("first_token_seconds").at(place), 0.0) << place;
    }
    EXPECT_GT(result.at("state").at("host_bytes"), 0U);
    EXPECT_GT(result.at("state").at("restore_seconds"), 0.0);
  }
  const auto refusal = [](const Words& more) {
    Words words{"bench", "--model", kSliding, "--cache", "dense", "--prefix", "300"};
    words.insert(words.end(), more.begin(), more.end());
    const CommandResult refused = run_winnow(words);
    EXPECT_EQ(refused.code, 1);
    return refused.err;
  };
  EXPECT_THAT(refusal({}), HasSubstr("--prefix: needs --host-gib"));
  EXPECT_THAT(refusal({"--host-gib", "0.001", "--context", "9"}),
              HasSubstr("--prefix: excludes --context"));
  EXPECT_THAT(refusal({"--host-gib", "0.00001"}), HasSubstr("the prefix was not kept"));
}

json fit_of(const json& fits, const char* shape) {
  return *std::ranges::find_if(fits, [&](const json& row) { return row.at("shape") == shape; });
}

TEST(Doctor, TellsMachineAndWhatFits) {
  const json result = run_json({"doctor", "--json", "--context", "1024", "--cr", "4"});
  EXPECT_GT(result.at("memory_bytes"), result.at("available_bytes"));
  EXPECT_GE(result.at("threads"), 1);
  EXPECT_EQ(result.at("devices").empty(), !result.at("why_no_device").get<std::string>().empty());
  const json& small = result.at("fits").at(0);
  EXPECT_EQ(small.at("device"), "cpu");
  EXPECT_EQ(small.at("shape"), "smollm2-135m");
  EXPECT_EQ(small.at("weight_bytes"), 2 * 134'479'872) << "the 2-D weights of SmolLM2-135M";
  EXPECT_GT(small.at("most_tokens_per_s"), 1.0);
  const auto reads = [&](const json& row) {
    return row.at("weight_bytes").get<double>() * row.at("most_tokens_per_s").get<double>();
  };
  const json& fits = result.at("fits");
  EXPECT_NEAR(reads(fits.at(1)) / reads(fits.at(0)), 1.0, 1e-9) << "all weights for each token";
  EXPECT_GT(reads(fit_of(fits, "qwen3-30b-a3b")), 5 * reads(fits.at(0))) << "few experts";
  EXPECT_EQ(small.at("sequence_bytes_dense"), 1024 * 30 * 3 * 64 * 2 * 2);
  EXPECT_EQ(small.at("sequence_bytes_compressed"), 256 * 30 * 3 * 64 * 2 * 2);
  EXPECT_GT(small.at("sequences_compressed"), small.at("sequences_dense"));
  const double left = result.at("available_bytes").get<double>() - 2 * 134'479'872;
  const double dense = small.at("sequences_dense").get<double>() * 1024 * 30 * 3 * 64 * 2 * 2;
  EXPECT_NEAR(dense / left, 0.9, 0.02) << "as much as the server's cache takes";
  const CommandResult table = run_winnow({"doctor"});
  EXPECT_THAT(table.out, HasSubstr("qwen3-8b"));
  EXPECT_THAT(table.out, HasSubstr("a server's copy of matrices counts, too"));
  EXPECT_THAT(table.out, HasSubstr("  smollm2-135m         256 MiB          180 MiB"));
  EXPECT_THAT(table.out, HasSubstr("weights  one chat, dense  decode at most  chats: dense  "
                                   "chats: compressed\n"));
  EXPECT_THAT(table.out, HasSubstr("  cpu's memory reads "));
  EXPECT_THAT(table.out, HasSubstr("/s, measured now; other programs lower it\n"));
  EXPECT_TRUE(std::ranges::is_sorted(fits.begin(), fits.begin() + 14, {}, [](const json& row) {
    return row.at("weight_bytes").get<double>();
  }));
  EXPECT_EQ(run_winnow({"doctor", "--cr", "0.5"}).code, 1);
}

TEST(Doctor, TellsWhatFitsInOtherFormats) {
  constexpr double kWeights = 134'479'872;
  const auto small = [](const char* weights, const char* entries) {
    return run_json({"doctor", "--json", "--weights", weights, "--kv-dtype", entries})
        .at("fits")
        .at(0);
  };
  const json plain = small("auto", "bf16");
  const json int8 = small("int8", "fp8");
  EXPECT_EQ(int8.at("weight_bytes"), kWeights * (1 + 2.0 / 32)) << "a bf16 scale per 32";
  EXPECT_EQ(small("int4", "bf16").at("weight_bytes"), kWeights * (0.5 + 2.0 / 32));
  const double halved = int8.at("sequence_bytes_dense").get<double>() /
                        plain.at("sequence_bytes_dense").get<double>();
  EXPECT_NEAR(halved, 0.515, 0.005) << "half the codes, and a scale per entry";
  EXPECT_GT(int8.at("sequences_dense"), plain.at("sequences_dense"));
  const CommandResult table = run_winnow({"doctor", "--weights", "int4"});
  EXPECT_THAT(table.out, HasSubstr("weights in int4, cache entries in bf16"));
  const CommandResult wrong = run_winnow({"doctor", "--weights", "int2"});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("--weights int2: expected auto, fp8, int8 or int4"));
  EXPECT_EQ(run_winnow({"doctor", "--kv-dtype", "int2"}).code, 1);
}

TEST(Doctor, PlansForADeviceThatIsNotHere) {
  const json rows = run_json({"doctor", "--json", "--memory-gib", "0.5"}).at("fits");
  for (const json& row : rows) {
    EXPECT_EQ(row.at("device"), "0.5 GiB");
    EXPECT_TRUE(row.at("most_tokens_per_s").is_null()) << "not measured";
  }
  const json& small = rows.at(0);
  const double left = 0.5 * (1 << 30) - 2 * 134'479'872;
  EXPECT_NEAR(small.at("sequences_dense").get<double>(),
              0.9 * left / small.at("sequence_bytes_dense").get<double>(), 1.0);
  EXPECT_EQ(rows.at(rows.size() - 1).at("sequences_dense"), 0);
  EXPECT_THAT(run_winnow({"doctor", "--memory-gib", "0.5"}).out, Not(HasSubstr("measured now")));
  EXPECT_EQ(run_winnow({"doctor", "--memory-gib", "80", "--weights", "fp8"}).code, 0)
      << "a device's format, whatever is here";
  EXPECT_THAT(run_winnow({"doctor", "--memory-gib", "156.8"}).out,
              HasSubstr("  156.8 GiB smollm2-135m "));
  EXPECT_EQ(run_winnow({"doctor", "--memory-gib", "-1"}).code, 1);
}

TEST(Doctor, SaysWhatHelpsWhereNoChatFits) {
  const std::string table = run_winnow({"doctor", "--memory-gib", "8"}).out;
  EXPECT_THAT(table, HasSubstr("-          none                  3  a dense one fits with "
                               "--weights int8\n"));
  const std::string small =
      run_winnow({"doctor", "--memory-gib", "4", "--weights", "int4", "--context", "262144"}).out;
  EXPECT_THAT(small, HasSubstr("no room for a chat; needs a shorter --context or a smaller model"));
  EXPECT_THAT(small + table, Not(HasSubstr(" 0 ")));
  EXPECT_THAT(small + table, Not(HasSubstr(" 0\n")));
}

// The caches that one H100 had under `winnow bench --load` (docs/results/gpu/load-*.json).
TEST(Doctor, CountsTheCopyOfMatricesOnADevice) {
  const auto cache = [](const Words& more) {  // of 78.4 free GiB of an H100's 79.6
    Words words{"doctor", "--json", "--memory-gib", "78.4", "--weights", "fp8"};
    words.insert(words.end(), more.begin(), more.end());
    return fit_of(run_json(words).at("fits"), "llama-3.1-8b").at("cache_bytes").get<double>() /
           0x1p30;
  };
  EXPECT_NEAR(cache({"--dtype", "fp8"}), 57.1, 0.1) << "as measured";
  constexpr double kLayers = 32 * 4096.0 * (4096 + 1024 + 1024 + 4096 + 3 * 14336);
  EXPECT_NEAR(cache({"--dtype", "fp8"}) - cache({}), 0.9 * kLayers / 0x1p30, 1e-3)
      << "the copies of layers take 2 bytes a weight instead of 1";
  const CommandResult wrong = run_winnow({"doctor", "--dtype", "fp8"});
  EXPECT_THAT(wrong.err, HasSubstr("--dtype fp8: multiplies fp8 weights"));
}

TEST(Winnow, HelpDescribesAFlagThatIsAlsoAWordOnce) {
  const std::string help = run_winnow({"inspect", "--help"}).out;
  EXPECT_THAT(help, HasSubstr("The same as --model"));
  EXPECT_EQ(help.find("REQUIRED"), help.rfind("REQUIRED")) << help;
}

TEST(Winnow, WithoutACommandShowsTheGuide) {
  const CommandResult result = run_winnow({});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("generate"), HasSubstr("First steps:\n  winnow doctor")));
  const CommandResult eval = run_winnow({"eval"});
  EXPECT_EQ(eval.code, 0);
  EXPECT_THAT(eval.out, AllOf(HasSubstr("perplexity"), Not(HasSubstr("doctor"))));
}

// The help in one line.
std::string help_of(const std::string& command) {
  return std::regex_replace(run_winnow({command, "--help"}).out, std::regex("\\s+"), " ");
}

TEST(Winnow, HelpSaysWhatRatiosAndWeightsAre) {
  EXPECT_THAT(help_of("generate"),
              AllOf(HasSubstr("--weights FORMAT=auto auto (as stored; on a CUDA device bf16)"),
                    HasSubstr("dms_quest and dms_budget, which need it (no default)")));
  EXPECT_THAT(help_of("bench"), HasSubstr("dms_quest and dms_budget, which need it; dms and dmc: "
                                          "decisions drawn at random"));
}

// If heads decide during generation, nobody knows beforehand which step needs pages.
TEST(Bench, WhatFitsRuns) {
  for (const char* context : {"80", "200"}) {
    const json result =
        run_json({"bench", "--model", kRetrofitted, "--context", context, "--generate", "8",
                  "--repeat", "1", "--threads", "1", "--fit", "--kv-gib", "0.002", "--json"});
    EXPECT_GE(result.at("batch").get<int>(), 2);
  }
}

// What is copied must be what computing gives: steps then see as many entries.
TEST(Bench, CopiesPromptsInsteadOfComputingThem) {
  Words words{"bench",    "--model", kRetrofitted, "--context", "80",      "--generate", "4",
              "--repeat", "1",       "--threads",  "1",         "--batch", "5",          "--json"};
  const json computed = run_json(words);
  words.insert(words.end(), {"--computed", "2"});
  const json copied = run_json(words);
  EXPECT_EQ(copied.at("computed"), 2);
  EXPECT_EQ(copied.at("batch"), 5);
  EXPECT_EQ(copied.at("kv"), computed.at("kv"));
  EXPECT_EQ(copied.at("entry_bytes_per_step"), computed.at("entry_bytes_per_step"));
  const CommandResult refused =
      run_winnow({"bench", "--model", kRetrofitted, "--depth", "8", "--computed", "2"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("--computed: goes with --context"));
}

TEST(Bench, MeasuresSpeedAndMemory) {
  const json result =
      run_json({"bench", "--model", kRetrofitted, "--depth", "64", "--prefill", "32", "--generate",
                "4", "--repeat", "1", "--threads", "1", "--json"});
  EXPECT_EQ(result.at("depth"), 64);
  EXPECT_EQ(result.at("cache"), "dms");
  EXPECT_EQ(result.at("prefill_runs").size(), 1U);
  for (const char* key : {"prefill_tokens_per_s", "decode_tokens_per_s", "weight_bytes_per_step",
                          "floor_tokens_per_s", "peak_rss_bytes"}) {
    EXPECT_GT(result.at(key), 0) << key;
  }
  EXPECT_FALSE(result.contains("memory_in_use_bytes")) << "of the CPU's it is everybody's";
}

TEST(Bench, HeadsMayKeepUnlikeShares) {
  const auto live_entries = [](const char* spread) {
    const json result = run_json({"bench", "--model", kRetrofitted, "--context", "600",
                                  "--generate", "1", "--repeat", "1", "--threads", "1", "--cr", "4",
                                  "--head-spread", spread, "--json"});
    EXPECT_EQ(result.at("head_spread"), std::stod(spread));
    return result.at("kv").at("live_entries").get<double>();
  };
  EXPECT_NEAR(live_entries("0.8") / live_entries("0"), 1.0, 0.05);
}

TEST(EvalPerplexity, ScoresATextAgainstDense) {
  const TempDirectory directory;
  std::string text;
  for (int i = 0; i < 4; ++i) {
    text += kPrompt;
  }
  const json result = run_json({"eval", "perplexity", "--model", kRetrofitted, "--text",
                                directory.write("text.txt", text), "--context", "64", "--reference",
                                "dense", "--threads", "1", "--json"});
  EXPECT_GT(result.at("tokens"), 64);
  EXPECT_GT(result.at("perplexity"), 1.0);
  EXPECT_NEAR(std::log(result.at("perplexity").get<double>()), result.at("nll_per_token"), 1e-6);
  EXPECT_GE(result.at("kld"), 0.0);
  EXPECT_LE(result.at("top1_agreement"), 1.0);
  EXPECT_NEAR(std::log(result.at("perplexity").get<double>() /
                       result.at("reference_perplexity").get<double>()),
              result.at("nll_change"), 1e-6);
}

// The paragraph of the demo's prompt with the code, and the question: enough to test the demo,
// in a sixth of the time.
std::string shortened_demo_prompt() {
  const std::string prompt =
      read_text(std::filesystem::path(WINNOW_SOURCE_DIR) / "assets/demo_prompt.txt");
  const std::size_t code = prompt.find("48213");
  const std::size_t first = prompt.rfind('\n', code) + 1;
  return prompt.substr(first, prompt.find('\n', code) + 1 - first) +
         prompt.substr(prompt.rfind("\nQuestion:"));
}

TEST(Demo, FindsTheCodeInTheText) {
  const TempDirectory directory;
  const CommandResult result =
      run_winnow({"demo", "--base", "no-base-model", "--max-tokens", "16", "--threads", "1",
                  "--prompt-file", directory.write("prompt.txt", shortened_demo_prompt())});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("48213"));  // its excerpt of the prompt does not contain it
  EXPECT_THAT(result.out, HasSubstr("compression ratio"));
  EXPECT_THAT(result.out, HasSubstr("same, dense"));
  EXPECT_THAT(result.out, Not(HasSubstr(" \n"))) << "blanks at the end of a line";
  EXPECT_THAT(result.out,
              HasSubstr(std::string("Next: ") + WINNOW_BINARY + " serve --model assets/dms-cr8"));
}

}  // namespace
}  // namespace winnow::testing
