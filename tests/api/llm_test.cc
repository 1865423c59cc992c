// Tests of the public API on the demo model and on models without a tokenizer.
#include "winnow/llm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

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

TEST(Llm, TellsHowFarLoadingIs) {
  std::vector<int> done;
  LoadOptions options{.weights = "int4"};
  options.on_layer = [&](int layers, int all) {
    EXPECT_EQ(all, 8);
    done.push_back(layers);
  };
  static_cast<void>(load("assets/dms-cr8", options));
  EXPECT_EQ(done, (std::vector{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  options.on_layer = [](int layers, int /*all*/) {
    if (layers == 3) {
      throw std::runtime_error("enough");
    }
  };
  EXPECT_EQ(message_of([&] { static_cast<void>(load("assets/dms-cr8", options)); }), "enough");
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
  std::string prompt;  // longer than several windows
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
  // The last token was sampled but not appended to the cache.
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

  options.on_step = [](const Progress&) { return false; };  // stops within the prompt
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

// The natural logarithm of softmax(row)[token], by definition.
double log_softmax(std::span<const float> row, std::int32_t token) {
  double sum = 0.0;
  for (const float logit : row) {
    sum += std::exp(static_cast<double>(logit));
  }
  return row[static_cast<std::size_t>(token)] - std::log(sum);
}

TEST(Llm, LogitsAndLogprobsTellTheSameStory) {
  Llm llm = load("assets/dms-cr8", {.dtype = "fp32", .chunk = 32, .deterministic = true});
  const auto tokens = llm.tokenize(kPrompt);
  const auto vocab = static_cast<std::size_t>(llm.info().vocab);
  const std::size_t heads = 16;
  std::vector<float> logits(tokens.size() * vocab);
  std::vector<std::int32_t> live(tokens.size() * heads);
  llm.logits(tokens, logits, live);
  const Generation scored =
      llm.generate(std::span(tokens), {.max_tokens = 1, .logprobs = 2, .prompt_logprobs = true});
  ASSERT_EQ(scored.prompt_logprobs.size(), tokens.size() - 1);
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    const ScoredToken& token = scored.prompt_logprobs[i];
    const auto row = std::span(logits).subspan(i * vocab, vocab);
    EXPECT_EQ(token.token, tokens[i + 1]);
    EXPECT_NEAR(token.logprob, log_softmax(row, token.token), 1e-4);
    ASSERT_EQ(token.alternatives.size(), 2U);
    EXPECT_EQ(token.alternatives[0].token, std::ranges::max_element(row) - row.begin());
  }
  const ScoredToken& answer = scored.samples.at(0).logprobs.at(0);
  EXPECT_EQ(answer.token, scored.samples[0].token_ids.at(0));
  EXPECT_NEAR(answer.logprob, log_softmax(std::span(logits).last(vocab), answer.token), 1e-4);
  // Each query sees at least itself, and at most all tokens before it.
  for (std::size_t i = 0; i < live.size(); ++i) {
    EXPECT_LE(live[i], static_cast<int>(i / heads) + 1);
    EXPECT_GE(live[i], 1);
  }
  const auto& held = scored.samples[0].kv.per_layer_head;
  for (std::size_t i = 0; i < heads; ++i) {
    EXPECT_EQ(live[(tokens.size() - 1) * heads + i], held[i / 2][i % 2]);
  }
}

TEST(Llm, LogitsOfOneTokenAndOfNone) {
  Llm llm = load("assets/dms-cr8");
  const auto vocab = static_cast<std::size_t>(llm.info().vocab);
  std::vector<float> logits(vocab);
  llm.logits(std::vector<std::int32_t>{7}, logits);
  EXPECT_NE(*std::ranges::max_element(logits), 0.0F);
  EXPECT_THAT(message_of([&] { llm.logits(std::vector<std::int32_t>{}, {}); }),
              HasSubstr("prompt is empty"));
  EXPECT_THAT(message_of([&] {
                llm.logits(std::vector<std::int32_t>{1, 2}, logits);
              }),
              HasSubstr("2 tokens"));
}

std::vector<std::int32_t> finish(Stream& stream) {
  while (stream.advance()) {
    stream.take();
  }
  return stream.finish().samples.at(0).token_ids;
}

TEST(LlmStream, StreamsMoveOnTogetherAndEachSaysWhatItSaysAlone) {
  Llm llm = load("assets/dms-cr8", {.deterministic = true});
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<std::vector<std::int32_t>> alone;
  for (const std::size_t length : {5, 20, 40}) {
    const auto tokens = llm.tokenize(kPrompt);
    prompts.emplace_back(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(length));
    alone.push_back(llm.generate(std::span(prompts.back()), {.max_tokens = 12, .ignore_eos = true})
                        .samples.at(0)
                        .token_ids);
  }
  std::vector<Stream> streams;
  for (const auto& prompt : prompts) {
    streams.push_back(llm.start(prompt, {.max_tokens = 12, .ignore_eos = true}));
  }
  EXPECT_EQ(llm.cache_memory().waiting + llm.cache_memory().running, 3U);
  EXPECT_EQ(finish(streams[2]), alone[2]);
  EXPECT_GT(streams[0].progress().generated, 0);  // although nobody has waited for it yet
  EXPECT_EQ(finish(streams[0]), alone[0]);
  EXPECT_EQ(finish(streams[1]), alone[1]);
  EXPECT_EQ(llm.cache_memory().bytes, 0U);
}

TEST(LlmStream, OneThatIsDroppedGivesItsCacheBack) {
  Llm llm = load("assets/dms-cr8");
  {
    Stream stream = llm.start(llm.tokenize(kPrompt), {.max_tokens = 1000, .ignore_eos = true});
    ASSERT_TRUE(stream.advance());
    EXPECT_GT(llm.cache_memory().bytes, 0U);
  }
  EXPECT_EQ(llm.cache_memory().bytes, 0U);
  Stream stream = llm.start(llm.tokenize(kPrompt), {.max_tokens = 1000, .ignore_eos = true});
  while (stream.progress().generated < 3) {
    stream.advance();
    stream.take();
  }
  EXPECT_THAT(message_of([&] { stream.finish(); }), HasSubstr("not over"));
  stream.cancel();
  EXPECT_EQ(finish(stream).size(), 3U);
}

TEST(LlmStream, TellsWhatItsCacheHolds) {
  Llm llm = load("assets/dms-cr8");
  Stream stream = llm.start(llm.tokenize(kPrompt), {.max_tokens = 4, .ignore_eos = true});
  EXPECT_EQ(stream.cache().live_entries, 0);
  std::int64_t most = 0;
  while (stream.advance()) {
    stream.take();
    most = std::max(most, stream.cache().live_entries);
  }
  EXPECT_GT(most, 0);
  const CacheStats cache = stream.cache();
  const Sample sample = stream.finish().samples.front();
  EXPECT_EQ(cache.bytes, sample.kv.bytes);
  EXPECT_EQ(cache.per_layer_head, sample.kv.per_layer_head);
}

// A chat: the second prompt begins with the first prompt and its answer, whether this was complete
// or cancelled.
TEST(LlmStream, LaterPromptsBeginWithTheCacheOfEarlierOnes) {
  for (const bool cancelled : {false, true}) {
    Llm llm = load("assets/dms-cr8", {.deterministic = true, .reuse_prefixes = true});
    Stream stream = llm.start(llm.tokenize(kPrompt), {.max_tokens = 12, .ignore_eos = true});
    while (stream.progress().generated < 6) {
      stream.advance();
      stream.take();
    }
    if (cancelled) {
      stream.cancel();
    }
    std::vector<std::int32_t> prompt = llm.tokenize(kPrompt);
    std::ranges::copy(finish(stream), std::back_inserter(prompt));
    const std::size_t known = prompt.size() - 1;  // the last token's logits were not computed
    std::ranges::copy(llm.tokenize(" And then", false), std::back_inserter(prompt));
    const GenerateOptions options{.max_tokens = 8, .ignore_eos = true};
    const Generation later = llm.generate(prompt, options);
    EXPECT_EQ(later.reused_tokens, static_cast<int>(known)) << cancelled;
    Llm other = load("assets/dms-cr8", {.deterministic = true});
    const Generation alone = other.generate(prompt, options);
    EXPECT_EQ(alone.reused_tokens, 0);
    EXPECT_EQ(later.samples.front().token_ids, alone.samples.front().token_ids);
  }
}

TEST(LlmStream, KeepsItsModel) {
  auto llm = std::make_unique<Llm>(load("assets/dms-cr8"));
  Stream stream = llm->start(llm->tokenize(kPrompt), {.max_tokens = 4, .ignore_eos = true});
  llm.reset();
  EXPECT_EQ(finish(stream).size(), 4U);
}

TEST(LlmStream, ThreadsShareTheEngine) {
  Llm llm = load("assets/dms-cr8", {.deterministic = true});
  const GenerateOptions options{.max_tokens = 10, .samples = 2, .ignore_eos = true};
  const auto expected = llm.generate(kPrompt, options).samples.at(1).token_ids;
  const auto tokens = llm.tokenize(kPrompt);
  const auto vocab = static_cast<std::size_t>(llm.info().vocab);
  std::vector<float> logits(tokens.size() * vocab);
  llm.logits(tokens, logits);
  std::atomic<int> wrong = 0;
  const auto work = [&](int thread) {
    for (int round = 0; round < 4; ++round) {
      if (thread == 0) {
        std::vector<float> again(tokens.size() * vocab);
        llm.logits(tokens, again);
        wrong += again == logits ? 0 : 1;
      } else if (thread == 1) {
        Stream dropped = llm.start(tokens, options);
        dropped.advance();
      } else {
        wrong += llm.generate(kPrompt, options).samples.at(1).token_ids == expected ? 0 : 1;
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 5; ++i) {
      threads.emplace_back(work, i);
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(llm.cache_memory().bytes, 0U);
}

TEST(LlmStream, AStopStringEndsAStreamThatNobodyWaitsFor) {
  Llm llm = load("assets/dms-cr8");
  const GenerateOptions options{.max_tokens = 60, .ignore_eos = true};
  const auto whole = llm.generate(kPrompt, options).samples.at(0);
  GenerateOptions stopping = options;
  stopping.stop = {whole.text.substr(whole.text.size() / 3, 4)};
  Stream stopped = llm.start(llm.tokenize(kPrompt), stopping);
  Stream other = llm.start(llm.tokenize(kPrompt), options);
  finish(other);
  finish(stopped);
  const Generation result = llm.generate(kPrompt, stopping);
  EXPECT_EQ(result.samples.at(0).finish_reason, "stop");
  EXPECT_LT(stopped.progress().generated, 60);
  EXPECT_EQ(static_cast<std::size_t>(stopped.progress().generated),
            result.samples[0].token_ids.size());
}

}  // namespace
}  // namespace winnow
