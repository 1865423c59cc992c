// The public API, on the demo model and on models without a tokenizer.
#include "winnow/llm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>
#include <string>

#include "tokenizer/utf8.h"

namespace winnow {
namespace {

using ::testing::HasSubstr;

const std::string kRoot = WINNOW_SOURCE_DIR;
constexpr std::string_view kPrompt =
    "It was a dark and stormy night, and the captain of the ship went below to his cabin, and the "
    "men stood on the deck and looked at the sea, and nobody said a word about the lights in the "
    "water, which had followed the ship since the island.";

Llm load(const std::string& model, LoadOptions options = {}) {
  options.model = kRoot + "/" + model;
  options.threads = 1;
  return Llm::load(options);
}

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Llm, DescribesTheRun) {
  const Llm llm = load("assets/dms-cr8");
  EXPECT_EQ(llm.info().family, "llama");
  EXPECT_EQ(llm.info().cache, "dms");
  EXPECT_EQ(llm.info().kv_dtype, "bf16");
  EXPECT_EQ(llm.info().window, 64);
  EXPECT_EQ(llm.info().layers, 8);
  EXPECT_EQ(llm.info().kv_heads, 2);
}

TEST(Llm, StreamsTheTextItReturns) {
  Llm llm = load("assets/dms-cr8");
  GenerateOptions options{.max_tokens = 24, .samples = 2};
  options.sampling.temperature = 1.0;
  std::vector<std::string> streamed(2);
  const Generation result = llm.generate(kPrompt, options, [&](int sample, std::string_view text) {
    EXPECT_TRUE(is_valid_utf8(text));
    streamed[static_cast<std::size_t>(sample)] += text;
  });
  ASSERT_EQ(result.samples.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(streamed[i], result.samples[i].text);
    EXPECT_EQ(result.samples[i].text, llm.detokenize(result.samples[i].token_ids));
  }
  EXPECT_NE(streamed[0], streamed[1]);
  EXPECT_EQ(result.prompt_tokens, static_cast<int>(llm.tokenize(kPrompt).size()));
}

TEST(Llm, AccountsForItsCache) {
  Llm llm = load("assets/dms-cr8");
  std::string prompt;  // several windows long
  for (int i = 0; i < 8; ++i) {
    prompt += kPrompt;
  }
  const Generation result = llm.generate(prompt, {.max_tokens = 16, .ignore_eos = true});
  const CacheStats& kv = result.samples.at(0).kv;
  ASSERT_EQ(kv.per_layer_head.size(), 8U);
  std::int64_t live = 0;
  for (const auto& layer : kv.per_layer_head) {
    ASSERT_EQ(layer.size(), 2U);
    live += std::accumulate(layer.begin(), layer.end(), std::int64_t{0});
  }
  EXPECT_EQ(kv.live_entries, live);
  // The last token was sampled but not fed.
  const double dense = 16.0 * (result.prompt_tokens + 15);
  EXPECT_DOUBLE_EQ(kv.compression_ratio, dense / static_cast<double>(live));
  EXPECT_LT(kv.bytes, kv.dense_bytes);
}

TEST(Llm, AGenerationLeavesNothingBehindForTheNext) {
  Llm llm = load("assets/dms-cr8", {.deterministic = true});
  const GenerateOptions options{.max_tokens = 8};
  const auto first = llm.generate(kPrompt, options).samples.at(0).token_ids;
  EXPECT_THROW(llm.generate(kPrompt, options,
                            [](int, std::string_view) { throw std::runtime_error("enough"); }),
               std::runtime_error);
  EXPECT_EQ(llm.generate(kPrompt, options).samples.at(0).token_ids, first);
}

TEST(Llm, EndsWhenACallbackSaysSo) {
  Llm llm = load("assets/dms-cr8", {.chunk = 16});
  GenerateOptions options{.max_tokens = 1000};
  int last_prompt = 0;
  options.on_step = [&](const Progress& progress) {
    EXPECT_GE(progress.prompt_done, last_prompt);
    last_prompt = progress.prompt_done;
    return progress.generated < 3;
  };
  const Generation result = llm.generate(kPrompt, options);
  EXPECT_EQ(last_prompt, result.prompt_tokens);
  EXPECT_EQ(result.samples.at(0).token_ids.size(), 3U);
  EXPECT_EQ(result.samples.at(0).finish_reason, "cancelled");

  options.on_step = [](const Progress&) { return false; };  // within the prompt
  const Generation nothing = llm.generate(kPrompt, options);
  EXPECT_TRUE(nothing.samples.at(0).token_ids.empty());
  EXPECT_EQ(nothing.samples.at(0).finish_reason, "cancelled");
}

TEST(Llm, StopStringsEndEachSampleByItself) {
  Llm llm = load("assets/dms-cr8");
  GenerateOptions options{.max_tokens = 40, .samples = 3, .stop = {" the"}, .ignore_eos = true};
  options.sampling.temperature = 0.7;
  for (const Sample& sample : llm.generate(kPrompt, options).samples) {
    EXPECT_EQ(sample.text.find(" the"), std::string::npos);
    EXPECT_TRUE(sample.finish_reason == "stop" || sample.token_ids.size() == 40U);
  }
}

TEST(Llm, ModelsWithoutTokenizerTakeIds) {
  Llm llm = load("tests/fixtures/models/dms-own", {.dtype = "fp32"});
  const std::vector<std::int32_t> prompt{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const Generation result = llm.generate(std::span(prompt), {.max_tokens = 20, .ignore_eos = true});
  EXPECT_EQ(result.samples.at(0).token_ids.size(), 20U);
  EXPECT_EQ(result.samples.at(0).text, "");
  EXPECT_THAT(message_of([&] { llm.generate("text"); }), HasSubstr("tokenizer.json"));
  EXPECT_THAT(message_of([&] { llm.generate(std::span(prompt), {.stop = {"x"}}); }),
              HasSubstr("--stop"));
}

TEST(Llm, BadRequestsAreToldAndChangeNothing) {
  Llm llm = load("assets/dms-cr8");
  const auto message = [&](const GenerateOptions& options) {
    return message_of([&] { llm.generate(kPrompt, options); });
  };
  EXPECT_THAT(message({.max_tokens = 0}), HasSubstr("max tokens"));
  EXPECT_THAT(message({.max_tokens = 1 << 20}), HasSubstr("positions"));
  EXPECT_THAT(message({.samples = 0}), HasSubstr("--n 0"));
  EXPECT_THAT(message({.stop = {""}}), HasSubstr("--stop"));
  EXPECT_THAT(message({.sampling = {.temperature = -1.0}}), HasSubstr("temperature"));
  EXPECT_THAT(message_of([&] { llm.generate(std::vector<std::int32_t>{}); }),
              HasSubstr("prompt is empty"));
  EXPECT_EQ(llm.generate(kPrompt, {.max_tokens = 2}).samples.size(), 1U);
}

TEST(Llm, LoadErrorsNameTheFlag) {
  EXPECT_THAT(message_of([] { Llm::load({}); }), HasSubstr("--model"));
  EXPECT_THAT(message_of([] { load("assets/base", {.cache = "dms"}); }), HasSubstr("--cache dms"));
  EXPECT_THAT(message_of([] { load("assets/dms-cr8", {.cr = 4.0}); }), HasSubstr("--cr"));
}

}  // namespace
}  // namespace winnow
