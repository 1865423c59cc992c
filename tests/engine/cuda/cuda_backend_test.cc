// What a CUDA device computes beside what the CPU computes.
#include "engine/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/cpu_runner.h"
#include "engine/cuda/cuda_backend_testing.h"
#include "engine/llm_load.h"
#include "engine/llm_session.h"

namespace winnow::engine::testing {
namespace {

class CudaBackendTest : public OnDevice<::testing::TestWithParam<Case>> {};

// The whole text in pieces: a chunk, single tokens, a chunk, single tokens.
void feed_both(Session& cpu, Session& cuda, const ModelConfig& config, const Case& c) {
  const auto tokens = random_tokens(400, config.vocab);
  const auto vocab = static_cast<std::size_t>(config.vocab);
  const auto heads = static_cast<std::size_t>(config.layers * config.kv_heads);
  std::size_t first = 0;
  for (const std::size_t count : {150U, 1U, 1U, 1U, 100U, 3U, 1U, 1U, 16U, 17U, 87U, 1U, 1U}) {
    const auto chunk = std::span(tokens).subspan(first, count);
    std::vector<float> expected(count * vocab);
    std::vector<float> got(count * vocab, NAN);
    std::vector<std::int32_t> expected_seen(count * heads);
    std::vector<std::int32_t> seen(count * heads);
    cpu.feed(chunk, expected, expected_seen);
    // Single tokens go through the captured step, which tells what Quest's queries see.
    const bool with_seen = count > 1 || c.rule == kvcache::RuleKind::quest;
    cuda.feed(chunk, got, with_seen ? std::span(seen) : std::span<std::int32_t>());
    EXPECT_LE(relative_error(got, expected), c.tolerance) << "tokens from " << first;
    if (with_seen) {
      EXPECT_EQ(seen, expected_seen) << "tokens from " << first;
    }
    first += count;
  }
  const CacheUsage on_cpu = cpu.usage();
  const CacheUsage on_cuda = cuda.usage();
  EXPECT_EQ(on_cuda.per_head, on_cpu.per_head);
  EXPECT_EQ(on_cuda.live_entries, on_cpu.live_entries);
  EXPECT_EQ(on_cuda.tokens, on_cpu.tokens);
}

INSTANTIATE_TEST_SUITE_P(
    Models, CudaBackendTest,
    ::testing::Values(
        Case{"llama_fp8", Family::llama, 64, 4, false, kvcache::RuleKind::dms,
             ops::EntryFormat::f8e4m3, WeightStorage::as_stored, 1e-1},
        Case{"llama_bf16", Family::llama, 64, 3, false, kvcache::RuleKind::dms,
             ops::EntryFormat::bf16, WeightStorage::as_stored, 2e-2},
        Case{"llama_dense", Family::llama, 128, 8, false, kvcache::RuleKind::dense,
             ops::EntryFormat::f8e4m3, WeightStorage::as_stored, 1e-1},
        Case{"llama_dense_bf16", Family::llama, 64, 4, false, kvcache::RuleKind::dense,
             ops::EntryFormat::bf16, WeightStorage::as_stored, 2e-2},
        Case{"llama_eight", Family::llama, 128, 8, false, kvcache::RuleKind::dms,
             ops::EntryFormat::bf16, WeightStorage::as_stored, 2e-2},
        Case{"llama_three_fp8", Family::llama, 64, 3, false, kvcache::RuleKind::dms,
             ops::EntryFormat::f8e4m3, WeightStorage::as_stored, 1e-1},
        Case{"biases_int8", Family::qwen2, 80, 1, true, kvcache::RuleKind::dms,
             ops::EntryFormat::i8, WeightStorage::as_stored, 2e-2, 1, true},
        Case{"biases_bf16", Family::qwen2, 64, 1, true, kvcache::RuleKind::dms,
             ops::EntryFormat::bf16, WeightStorage::as_stored, 2e-2},
        Case{"llama_shift_within", Family::llama, 64, 4, false, kvcache::RuleKind::dms,
             ops::EntryFormat::bf16, WeightStorage::as_stored, 2e-2, 7},
        Case{"llama_shift", Family::llama, 64, 4, false, kvcache::RuleKind::dms,
             ops::EntryFormat::bf16, WeightStorage::as_stored, 2e-2, 41},
        Case{"llama_streaming", Family::llama, 64, 4, false, kvcache::RuleKind::streaming,
             ops::EntryFormat::bf16, WeightStorage::as_stored, 2e-2},
        Case{"qwen3_streaming_fp8", Family::qwen3, 128, 2, false, kvcache::RuleKind::streaming,
             ops::EntryFormat::f8e4m3, WeightStorage::as_stored, 1e-1},
        Case{"qwen3_streaming_int8", Family::qwen3, 128, 2, false, kvcache::RuleKind::streaming,
             ops::EntryFormat::i8, WeightStorage::as_stored, 2e-2},
        // What leaves or is read may hang on the last bit: then the logits differ.
        Case{"llama_tova", Family::llama, 64, 4, false, kvcache::RuleKind::tova,
             ops::EntryFormat::bf16, WeightStorage::as_stored, 7e-1},
        Case{"qwen3_h2o", Family::qwen3, 128, 2, false, kvcache::RuleKind::h2o,
             ops::EntryFormat::f8e4m3, WeightStorage::as_stored, 3e-1},
        Case{"llama_quest", Family::llama, 64, 1, false, kvcache::RuleKind::quest,
             ops::EntryFormat::bf16, WeightStorage::as_stored, 3e-1},
        Case{"llama_dmc", Family::llama, 64, 4, false, kvcache::RuleKind::dmc,
             ops::EntryFormat::bf16, WeightStorage::as_stored, 2e-2},
        Case{"llama_dmc_fp8", Family::llama, 128, 2, false, kvcache::RuleKind::dmc,
             ops::EntryFormat::f8e4m3, WeightStorage::as_stored, 1e-1},
        Case{"qwen3_dmc_int8", Family::qwen3, 96, 3, false, kvcache::RuleKind::dmc,
             ops::EntryFormat::i8, WeightStorage::as_stored, 3e-2},
        Case{"llama_q4", Family::llama, 64, 4, false, kvcache::RuleKind::dms, ops::EntryFormat::q4,
             WeightStorage::as_stored, 3e-1},
        Case{"qwen3_q4", Family::qwen3, 128, 2, false, kvcache::RuleKind::dense,
             ops::EntryFormat::q4, WeightStorage::as_stored, 3e-1},
        Case{"qwen3_fp8", Family::qwen3, 128, 4, false, kvcache::RuleKind::dms,
             ops::EntryFormat::f8e4m3, WeightStorage::as_stored, 1e-1},
        Case{"qwen3_int8_weights", Family::qwen3, 96, 2, false, kvcache::RuleKind::dms,
             ops::EntryFormat::bf16, WeightStorage::int8, 2e-2},
        Case{"llama_int8_weights", Family::llama, 64, 4, false, kvcache::RuleKind::dms,
             ops::EntryFormat::bf16, WeightStorage::int8, 2e-2},
        Case{"qwen3_fp8_int4_weights", Family::qwen3, 128, 4, false, kvcache::RuleKind::dms,
             ops::EntryFormat::f8e4m3, WeightStorage::int4, 1e-1},
        Case{"llama_int4_weights", Family::llama, 64, 4, false, kvcache::RuleKind::dms,
             ops::EntryFormat::bf16, WeightStorage::int4, 4e-2},
        Case{"llama_fp8_weights", Family::llama, 64, 4, false, kvcache::RuleKind::dms,
             ops::EntryFormat::bf16, WeightStorage::fp8, 3e-1}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(CudaBackendTest, ComputesWhatTheCpuComputes) {
  const Case& c = GetParam();
  const ModelConfig config = config_of(c);
  const EngineConfig on_cpu = engine_config(c, false);
  EngineConfig host = on_cpu;
  host.weights = c.weights == WeightStorage::fp8 ? WeightStorage::as_stored : c.weights;
  model::Model reference(config, model::random_weights(config, DType::bf16, 3, host_format(host)));
  model::Model model(config, model::random_weights(config, DType::bf16, 3));
  reference.draw_decisions({.rate = 0.7});
  model.draw_decisions({.rate = 0.7});
  const CpuBackend cpu(reference);
  const auto cuda = make_backend(model, engine_config(c, true));
  Session cpu_session(cpu, on_cpu, {200, 400});
  Session cuda_session(*cuda, engine_config(c, true), {200, 400});
  feed_both(cpu_session, cuda_session, config, c);
}

// DMC as its channels say: a layer that decides as one, and entries of a fixed number of tokens.
class CudaMerging : public CudaBackendTest {};

INSTANTIATE_TEST_SUITE_P(
    Models, CudaMerging,
    ::testing::Values(Case{"llama", Family::llama, 64, 4, false, kvcache::RuleKind::dmc,
                           ops::EntryFormat::bf16, WeightStorage::as_stored, 2e-2},
                      Case{"qwen3", Family::qwen3, 96, 3, false, kvcache::RuleKind::dmc,
                           ops::EntryFormat::bf16, WeightStorage::as_stored, 2e-2}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(CudaMerging, ComputesWhatTheCpuComputes) {
  const Case& c = GetParam();
  ModelConfig pooled = config_of(c);
  pooled.dmc->pooled = 3;
  ModelConfig hard = config_of(c);
  hard.dmc->per_layer = true;
  hard.dmc->offset = -100.0F;  // all is merged: no decision near its edge, but every weight counts
  for (const ModelConfig& config : {pooled, hard}) {
    const model::Model reference(
        config,
        model::random_weights(config, DType::bf16, 3, host_format(engine_config(c, false))));
    const model::Model model(config, model::random_weights(config, DType::bf16, 3));
    const CpuBackend cpu(reference);
    const auto cuda = make_backend(model, engine_config(c, true));
    Session cpu_session(cpu, engine_config(c, false), {200, 400});
    Session cuda_session(*cuda, engine_config(c, true), {200, 400});
    feed_both(cpu_session, cuda_session, config, c);
  }
}

TEST_P(CudaMerging, ALayerDecidesAsOne) {
  const Case& c = GetParam();
  const auto entries = [&](bool per_layer) {
    ModelConfig config = config_of(c);
    config.dmc->offset = 0.0F;
    config.dmc->per_layer = per_layer;
    const model::Model model(config, model::random_weights(config, DType::bf16, 3));
    const auto cuda = make_backend(model, engine_config(c, true));
    Session session(*cuda, engine_config(c, true), {200, 400});
    const auto tokens = random_tokens(400, config.vocab);
    std::vector<float> logits(400 * static_cast<std::size_t>(config.vocab));
    session.feed(tokens, logits, {});
    return session.usage().per_head;
  };
  const auto apart = entries(false);
  const auto together = entries(true);
  EXPECT_NE(apart[0], apart[1]);
  EXPECT_EQ(together[0], apart[0]);  // the first layer's input is the same
  for (std::size_t head = 0; head < together.size(); head += 2) {
    EXPECT_EQ(together[head], together[head + 1]);
  }
}

// Batches that are padded to the sizes there are graphs for, by each way to compute linear layers.
TEST_P(CudaBackendTest, DecodesManySequencesAtOnce) {
  const Case& c = GetParam();
  const ModelConfig config = config_of(c);
  model::Model model(config, model::random_weights(config, DType::bf16, 3));
  model.draw_decisions({.rate = 0.7});
  EngineConfig options = engine_config(c, true);
  options.cache.max_bytes *= 2;
  const auto backend = make_backend(model, options);
  options.max_sequences = 16;
  const auto few = backend->make_runner(options);
  options.max_sequences = 100;
  const auto many = backend->make_runner(options);

  constexpr std::size_t kSequences = 70;
  const auto tokens = random_tokens(400, config.vocab);
  const auto vocab = static_cast<std::size_t>(config.vocab);
  std::vector<std::unique_ptr<SequenceState>> expected_sequences;
  std::vector<std::unique_ptr<SequenceState>> sequences;
  const auto feed = [&](Runner& runner, SequenceState& sequence, std::size_t count) {
    SequenceShare share;
    share.sequence = &sequence;
    share.tokens = std::span(tokens).subspan(static_cast<std::size_t>(sequence.length()), count);
    runner.forward(std::span(&share, 1), {}, {});
  };
  for (std::size_t i = 0; i < kSequences; ++i) {
    expected_sequences.push_back(few->open({200, 400}));
    sequences.push_back(many->open({200, 400}));
    feed(*few, *expected_sequences.back(), 1 + 4 * i);
    feed(*many, *sequences.back(), 1 + 4 * i);
  }
  // Batches of different sizes, padded and not.
  for (const std::size_t batch : {70U, 42U, 17U, 32U, 66U, 40U}) {
    std::vector<SequenceShare> shares(batch);
    const auto step = [&](Runner& runner, auto& all, std::vector<float>& logits,
                          std::vector<std::int32_t>& next) {
      logits.assign(batch * vocab, NAN);
      next.assign(batch, -1);
      for (std::size_t i = 0; i < batch; ++i) {
        shares[i].sequence = all[i].get();
        shares[i].tokens = std::span(tokens).subspan(static_cast<std::size_t>(all[i]->length()), 1);
        shares[i].history = std::span(tokens).first(static_cast<std::size_t>(all[i]->length()) + 1);
        shares[i].rule.octaves = i % 2 == 0 ? 1.0F : 0.0F;
        shares[i].rule.penalty = i % 3 == 0 ? 2.0F : 1.0F;
        shares[i].rule.random = mix64(i);
      }
      runner.forward(shares, {logits.data(), batch, vocab}, next);
      for (std::size_t i = 0; i < batch; ++i) {
        const auto row = std::span<const float>(logits).subspan(i * vocab, vocab);
        EXPECT_EQ(next[i], ops::sample_token(row, shares[i].history, shares[i].rule)) << i;
      }
    };
    std::vector<float> expected;
    std::vector<float> got;
    std::vector<std::int32_t> next;
    step(*few, expected_sequences, expected, next);
    step(*many, sequences, got, next);
    EXPECT_LE(relative_error(got, expected), c.tolerance) << "batch of " << batch;
  }
  for (std::size_t i = 0; i < kSequences; ++i) {
    EXPECT_EQ(sequences[i]->usage().per_head, expected_sequences[i]->usage().per_head);
  }
  EXPECT_EQ(many->page_bytes(), few->page_bytes());
}

// Rows of so many pages that a warp has one, some, and more than it finds at once; beside a short
// sequence, in one kernel and, where they are too unlike, not.
TEST_F(CudaBackend, ComputesOneSequenceAsItComputesTwo) {
  for (const auto format : {ops::EntryFormat::bf16, ops::EntryFormat::f8e4m3}) {
    const Case c = plain_case("long", Family::llama, kvcache::RuleKind::dense, format);
    ModelConfig config = config_of(c);
    config.max_positions = 80000;
    const model::Model model(config, model::random_weights(config, DType::bf16, 3));
    EngineConfig options = engine_config(c, true);
    options.cache.max_bytes = std::size_t{1} << 30;
    const auto backend = make_backend(model, options);
    for (const std::size_t length : {2000U, 9000U, 70000U}) {
      const auto runner = backend->make_runner(options);
      const auto tokens = random_tokens(static_cast<int>(length) + 4, config.vocab);
      const auto vocab = static_cast<std::size_t>(config.vocab);
      std::vector<std::unique_ptr<SequenceState>> sequences;
      const auto share_of = [&](std::size_t sequence, std::size_t count) {
        SequenceShare share;
        share.sequence = sequences[sequence].get();
        const auto first = static_cast<std::size_t>(sequences[sequence]->length());
        share.tokens = std::span(tokens).subspan(first, count);
        return share;
      };
      for (const std::size_t prompt : {length, length, std::size_t{20}}) {
        sequences.push_back(runner->open({static_cast<int>(prompt), static_cast<int>(length) + 4}));
        const SequenceShare share = share_of(sequences.size() - 1, prompt);
        runner->forward(std::span(&share, 1), {}, {});
      }
      for (int step = 0; step < 3; ++step) {
        std::vector<float> alone(vocab);
        std::vector<float> beside(2 * vocab);
        std::vector<std::int32_t> next(2);
        const SequenceShare one = share_of(0, 1);
        const std::vector<SequenceShare> two{share_of(1, 1), share_of(2, 1)};
        runner->forward(std::span(&one, 1), {alone.data(), 1, vocab}, std::span(next).first(1));
        runner->forward(two, {beside.data(), 2, vocab}, next);
        EXPECT_LE(relative_error(alone, std::span(beside).first(vocab)), 2e-2)
            << length << " tokens, step " << step;
      }
      EXPECT_EQ(sequences[0]->usage().per_head, sequences[1]->usage().per_head);
    }
  }
}

// Loaded here on the last device, run by a thread whose current device is the first.
TEST_F(CudaBackend, TakesStepsOfAnyThread) {
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  if (devices < 2) {
    GTEST_SKIP() << "of one device every thread is on the right one";
  }
  const Case c =
      plain_case("anywhere", Family::llama, kvcache::RuleKind::dms, ops::EntryFormat::bf16);
  const ModelConfig config = config_of(c);
  const model::Model model(config, model::random_weights(config, DType::bf16, 3));
  const auto answer = [&](int device) {
    EngineConfig options = engine_config(c, true);
    options.cuda_device = device;
    const auto backend = make_backend(model, options);
    Engine engine(*backend, options);
    std::vector<std::int32_t> answered;
    std::thread([&] {
      Request request;
      request.prompt = random_tokens(100, config.vocab);
      request.max_tokens = 20;
      engine.submit(std::move(request));
      while (!engine.idle()) {
        for (const TokenEvent& event : engine.step()) {
          answered.push_back(event.token);
        }
      }
    }).join();
    return answered;
  };
  EXPECT_EQ(answer(devices - 1), answer(0));
}

// Without logits, the step of a few sequences ends in the kernel that computes it, otherwise in one
// of its own: both tell the host the same.
struct Told {
  std::unique_ptr<Runner> runner;
  std::vector<std::unique_ptr<SequenceState>> sequences;

  // The next tokens of each sequence, as many of each.
  std::vector<std::int32_t> step(std::span<const std::int32_t> tokens, std::size_t count,
                                 ops::Matrix<float> logits) const {
    std::vector<SequenceShare> shares;
    for (const auto& sequence : sequences) {
      shares.emplace_back().sequence = sequence.get();
      shares.back().tokens = tokens.subspan(static_cast<std::size_t>(sequence->length()), count);
    }
    std::vector<std::int32_t> next(sequences.size(), -1);
    runner->forward(shares, logits, next);
    return next;
  }
  // As the last step has reported them.
  [[nodiscard]] std::size_t free_pages() const {
    std::size_t low = 0;
    std::size_t high = std::size_t{1} << 28;
    while (low < high) {
      const std::size_t middle = (low + high + 1) / 2;
      runner->has_room({.archive = middle}) ? low = middle : high = middle - 1;
    }
    return low;
  }
};

// `count` sequences that have read the first `longest`, `longest` - `less`, ... tokens.
Told opened(const Backend& backend, const EngineConfig& options,
            std::span<const std::int32_t> tokens, std::size_t count, std::size_t longest,
            std::size_t less) {
  Told told{backend.make_runner(options), {}};
  for (std::size_t i = 0; i < count; ++i) {
    told.sequences.push_back(told.runner->open({200, 400}));
    SequenceShare share;
    share.sequence = told.sequences.back().get();
    share.tokens = tokens.first(longest - less * i);
    told.runner->forward(std::span(&share, 1), {}, {});
  }
  return told;
}

TEST_F(CudaBackend, AStepInOneKernelTellsTheHostWhatOthersDo) {
  for (const auto rule : {kvcache::RuleKind::dms, kvcache::RuleKind::dense}) {
    const Case c = plain_case("told", Family::llama, rule, ops::EntryFormat::f8e4m3);
    const ModelConfig config = config_of(c);
    model::Model model(config, model::random_weights(config, DType::bf16, 3));
    model.draw_decisions({.rate = 0.7});
    const EngineConfig options = engine_config(c, true);
    const auto backend = make_backend(model, options);
    const auto tokens = random_tokens(400, config.vocab);
    const auto vocab = static_cast<std::size_t>(config.vocab);
    for (const std::size_t count : {1U, 3U, 8U}) {
      const Told greedy = opened(*backend, options, tokens, count, 150, 17);
      const Told sampled = opened(*backend, options, tokens, count, 150, 17);
      std::vector<float> logits(count * vocab);
      std::size_t most_needed = 0;
      for (int step = 0; step < 250; ++step) {
        EXPECT_EQ(greedy.step(tokens, 1, {}),
                  sampled.step(tokens, 1, {logits.data(), count, vocab}))
            << step;
        ASSERT_EQ(greedy.free_pages(), sampled.free_pages()) << step;
        for (std::size_t i = 0; i < count; ++i) {
          const std::size_t need = greedy.runner->need(*greedy.sequences[i], 1).archive;
          ASSERT_EQ(need, sampled.runner->need(*sampled.sequences[i], 1).archive) << step;
          most_needed = std::max(most_needed, need);
        }
      }
      EXPECT_GT(most_needed, 0U);
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(greedy.sequences[i]->usage().per_head, sampled.sequences[i]->usage().per_head);
      }
      EXPECT_EQ(greedy.runner->page_bytes(), sampled.runner->page_bytes());
    }
  }
}

// Each of `count` sequences, unlike in length and in what they keep, together and by itself: the
// same entries, logits within `tolerance`.
void compare_together_and_alone(const Backend& backend, const EngineConfig& options,
                                const ModelConfig& config, std::size_t count, double tolerance) {
  const auto tokens = random_tokens(400, config.vocab);
  const auto vocab = static_cast<std::size_t>(config.vocab);
  const Told together = opened(backend, options, tokens, count, 3 + 19 * (count - 1), 19);
  const Told alone = opened(backend, options, tokens, count, 3 + 19 * (count - 1), 19);
  for (int step = 0; step < 40; ++step) {
    std::vector<float> got(count * vocab, NAN);
    together.step(tokens, 1, {got.data(), count, vocab});
    std::vector<float> expected(count * vocab);
    for (std::size_t i = 0; i < count; ++i) {
      SequenceShare share;
      share.sequence = alone.sequences[i].get();
      share.tokens =
          std::span(tokens).subspan(static_cast<std::size_t>(share.sequence->length()), 1);
      alone.runner->forward(std::span(&share, 1), {expected.data() + i * vocab, 1, vocab}, {});
    }
    ASSERT_LE(relative_error(got, expected), tolerance) << count << " sequences, step " << step;
  }
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(together.sequences[i]->usage().per_head, alone.sequences[i]->usage().per_head);
  }
  EXPECT_EQ(together.runner->page_bytes(), alone.runner->page_bytes());
}

// Windows that turn over, pages that fill up, every rule.
TEST_P(CudaBackendTest, DecodesAFewSequencesAsEachByItself) {
  const Case& c = GetParam();
  const ModelConfig config = config_of(c);
  model::Model model(config, model::random_weights(config, DType::bf16, 3));
  model.draw_decisions({.rate = 0.7});
  EngineConfig options = engine_config(c, true);
  options.cache.max_bytes *= 2;
  const auto backend = make_backend(model, options);
  for (const std::size_t count : {2U, 3U, 5U, 8U, 11U}) {
    compare_together_and_alone(*backend, options, config, count, c.tolerance);
  }
}

// As many KV heads as leave a row of eight sequences two blocks, and one: attention's output is
// several chunks of o's input.
TEST_F(CudaBackend, DecodesAFewSequencesOfManyHeads) {
  for (const auto format : {ops::EntryFormat::bf16, ops::EntryFormat::f8e4m3}) {
    for (const int kv_heads : {8, 16}) {
      const Case c = plain_case("heads", Family::llama, kvcache::RuleKind::dms, format);
      ModelConfig config = config_of(c);
      config.kv_heads = kv_heads;
      config.heads = c.group * kv_heads;
      model::Model model(config, model::random_weights(config, DType::bf16, 3));
      model.draw_decisions({.rate = 0.7});
      EngineConfig options = engine_config(c, true);
      options.cache.max_bytes *= 4;
      const auto backend = make_backend(model, options);
      for (const std::size_t count : {2U, 8U}) {
        compare_together_and_alone(*backend, options, config, count,
                                   format == ops::EntryFormat::bf16 ? 2e-2 : 1e-1);
      }
    }
  }
}

// Few rows are computed in the same way whoever shares them (but one row of int4): short chunks of
// several sequences, of which some rows' logits are asked for, to the bit as each by itself.
TEST_F(CudaBackend, ReadsShortChunksTogetherAsOneByOne) {
  const Case c =
      plain_case("short", Family::qwen3, kvcache::RuleKind::dms, ops::EntryFormat::f8e4m3);
  const ModelConfig config = config_of(c);
  model::Model model(config, model::random_weights(config, DType::bf16, 3));
  model.draw_decisions({.rate = 0.7});
  const EngineConfig options = engine_config(c, true);
  const auto backend = make_backend(model, options);
  const auto tokens = random_tokens(200, config.vocab);
  const auto vocab = static_cast<std::size_t>(config.vocab);
  const auto run = [&](bool together) {
    const auto runner = backend->make_runner(options);
    std::vector<std::unique_ptr<SequenceState>> sequences;
    std::vector<float> logits;
    const auto forward = [&](std::span<const SequenceShare> shares) {
      std::size_t rows = 0;
      for (const SequenceShare& share : shares) {
        rows += share.logit_rows;
      }
      const std::size_t before = logits.size();
      logits.resize(before + rows * vocab, NAN);
      runner->forward(shares, {logits.data() + before, rows, vocab}, {});
    };
    const std::size_t prompts[] = {90, 7, 60};
    const std::size_t chunks[] = {5, 2, 9};
    const std::size_t rows[] = {1, 2, 4};
    std::vector<SequenceShare> shares(3);
    for (std::size_t i = 0; i < 3; ++i) {
      sequences.push_back(runner->open({120, 200}));
      shares[i].sequence = sequences[i].get();
      shares[i].tokens = std::span(tokens).first(prompts[i]);
      forward(std::span(shares).subspan(i, 1));
      shares[i].tokens = std::span(tokens).subspan(prompts[i], chunks[i]);
      shares[i].logit_rows = rows[i];
    }
    if (together) {
      forward(shares);
    } else {
      for (const SequenceShare& share : shares) {
        forward(std::span(&share, 1));
      }
    }
    return logits;
  };
  const std::vector<float> together = run(true);
  EXPECT_TRUE(std::ranges::all_of(together, [](float x) { return std::isfinite(x); }));
  EXPECT_EQ(together, run(false));
}

// A trained model decides by itself. Rounding may turn a decision that is close, and with it what
// later tokens see: counts agree to a percent.
TEST_F(CudaBackend, DecidesAsTheCpuDoes) {
  const std::filesystem::path demo = std::filesystem::path(WINNOW_SOURCE_DIR) / "assets/dms-cr8";
  if (!std::filesystem::exists(demo / "model.safetensors")) {
    GTEST_SKIP() << "the demo model is not here";
  }
  LoadOptions options;
  options.model = demo.string();
  options.kv_dtype = "fp8";
  const auto cpu = load_model(options);
  options.device = "cuda";
  const auto cuda = load_model(options);
  const auto tokens = random_tokens(900, cpu->model.config().vocab);
  Session on_cpu(*cpu->backend, cpu->engine, {900, 900});
  Session on_cuda(*cuda->backend, cuda->engine, {900, 900});
  std::vector<float> expected(static_cast<std::size_t>(cpu->model.config().vocab));
  std::vector<float> got(expected.size());
  // A prompt, then token after token.
  for (std::size_t first = 0; first < tokens.size();) {
    const std::size_t count = first == 0 ? 600 : 1;
    on_cpu.feed(std::span(tokens).subspan(first, count), expected);
    on_cuda.feed(std::span(tokens).subspan(first, count), got);
    first += count;
  }
  EXPECT_LE(relative_error(got, expected), 5e-2);
  EXPECT_NEAR(static_cast<double>(on_cuda.usage().live_entries),
              static_cast<double>(on_cpu.usage().live_entries),
              0.01 * static_cast<double>(on_cpu.usage().live_entries));
}

// DMC by its own channels, weights included; with an offset at which half of the tokens merge.
TEST_F(CudaBackend, MergesAsTheCpuDoes) {
  const Case c{"dmc",
               Family::llama,
               64,
               2,
               false,
               kvcache::RuleKind::dmc,
               ops::EntryFormat::bf16,
               WeightStorage::as_stored,
               0.0};
  ModelConfig config = config_of(c);
  config.dmc->offset = 0.0F;
  const model::Model model(config, model::random_weights(config, DType::bf16, 3));
  const CpuBackend cpu(model);
  const auto cuda = make_backend(model, engine_config(c, true));
  Session on_cpu(cpu, engine_config(c, false), {400, 400});
  Session on_cuda(*cuda, engine_config(c, true), {400, 400});
  const auto tokens = random_tokens(400, config.vocab);
  std::vector<float> expected(static_cast<std::size_t>(config.vocab));
  std::vector<float> got(expected.size());
  std::size_t first = 0;
  for (const std::size_t count : {300U, 1U, 1U, 1U, 97U}) {
    on_cpu.feed(std::span(tokens).subspan(first, count), expected);
    on_cuda.feed(std::span(tokens).subspan(first, count), got);
    first += count;
  }
  EXPECT_LE(relative_error(got, expected), 5e-2);
  const auto live = static_cast<double>(on_cpu.usage().live_entries);
  EXPECT_LT(live, 0.8 * 400 * config.layers * config.kv_heads);
  EXPECT_NEAR(static_cast<double>(on_cuda.usage().live_entries), live, 0.02 * live);
}

}  // namespace
}  // namespace winnow::engine::testing
