// Compares a CUDA device's results with the CPU's.
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

#include "api/llm_load.h"
#include "api/llm_session.h"
#include "engine/cpu_runner.h"
#include "engine/cuda/cuda_backend_testing.h"
#include "kvcache/any_calibration.h"

namespace winnow::engine::testing {
namespace {

class CudaBackendTest : public OnDevice<::testing::TestWithParam<Case>> {};

INSTANTIATE_TEST_SUITE_P(Models, CudaBackendTest, ::testing::ValuesIn(kCases), case_name);

TEST_P(CudaBackendTest, ComputesWhatTheCpuComputes) {
  const Case& c = GetParam();
  const model::ModelSpec config = config_of(c);
  const EngineConfig on_cpu = engine_config(c, false);
  EngineConfig host = on_cpu;
  host.weights = c.weights == WeightStorage::fp8 ? WeightStorage::as_stored : c.weights;
  model::Model reference(config, weights_of(config, host_format(host)));
  model::Model model(config, weights_of(config));
  reference.draw_decisions({.rate = 0.7});
  model.draw_decisions({.rate = 0.7});
  const CpuBackend cpu(reference);
  const auto cuda = make_backend(model, engine_config(c, true));
  Session cpu_session(cpu, on_cpu, {200, 400});
  Session cuda_session(*cuda, engine_config(c, true), {200, 400});
  feed_both(cpu_session, cuda_session, config, c);
}

// DMC in two variants: a whole layer decides as one, or entries have a fixed number of tokens.
class CudaMerging : public CudaBackendTest {};

INSTANTIATE_TEST_SUITE_P(
    Models, CudaMerging,
    ::testing::Values(Case{"llama", "llama", 64, 4, false, kvcache::RuleKind::dmc,
                           ops::EntryFormat::bf16, WeightStorage::as_stored, 2e-2},
                      Case{"qwen3", "qwen3", 96, 3, false, kvcache::RuleKind::dmc,
                           ops::EntryFormat::bf16, WeightStorage::as_stored, 2e-2}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(CudaMerging, ComputesWhatTheCpuComputes) {
  const Case& c = GetParam();
  model::ModelSpec pooled = config_of(c);
  pooled.dmc->pooled = 3;
  model::ModelSpec hard = config_of(c);
  hard.dmc->per_layer = true;
  hard.dmc->offset = -100.0F;  // all merge: no decision is close, but every weight counts
  for (const model::ModelSpec& config : {pooled, hard}) {
    const model::Model reference(config, weights_of(config, host_format(engine_config(c, false))));
    const model::Model model(config, weights_of(config));
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
    model::ModelSpec config = config_of(c);
    config.dmc->offset = 0.0F;
    config.dmc->per_layer = per_layer;
    const model::Model model(config, weights_of(config));
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

// Allows a fourth of the tokens; in the fifth of every eight rows, none.
void mask_for(std::size_t row, std::span<std::uint64_t> allowed) {
  for (std::size_t word = 0; word < allowed.size(); ++word) {
    allowed[word] = row % 8 == 5 ? 0 : mix64(word + 100 * row) & mix64(word + 1000 * row);
  }
}

// Batches padded to the sizes for which there are graphs, with some rows restricted, for each way
// of computing linear layers.
TEST_P(CudaBackendTest, DecodesManySequencesAtOnce) {
  const Case& c = GetParam();
  const model::ModelSpec config = config_of(c);
  model::Model model(config, weights_of(config));
  model.draw_decisions({.rate = 0.7});
  EngineConfig options = engine_config(c, true);
  options.cache.max_bytes *= 2;
  const auto backend = make_backend(model, options);
  options.max_sequences = is_hybrid(c) ? 40 : 16;  // all need states
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
        shares[i].allow = {};
        if (batch % 4 == 2 && i % 4 == 1) {
          shares[i].allow = [i](std::span<std::uint64_t> allowed) { mask_for(i, allowed); };
        }
      }
      runner.forward(shares, {logits.data(), batch, vocab}, next);
      for (std::size_t i = 0; i < batch; ++i) {
        const auto row = std::span<const float>(logits).subspan(i * vocab, vocab);
        std::vector<std::uint64_t> allowed(shares[i].allow ? ops::mask_words(vocab) : 0);
        mask_for(i, allowed);
        EXPECT_EQ(next[i], ops::sample_token(row, shares[i].history, shares[i].rule, allowed)) << i;
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

TEST_F(CudaBackend, ScoresByTheModelsStatistics) {
  Case c =
      plain_case("calibrated", "llama", kvcache::RuleKind::triattention, ops::EntryFormat::bf16);
  c.tolerance = 7e-1;  // the last bit may decide what is dropped
  const model::ModelSpec config = config_of(c);
  model::Model model(config, weights_of(config));
  model.calibrate(winnow::testing::any_calibration(model.cache_shape()));
  const CpuBackend cpu(model);
  const auto cuda = make_backend(model, engine_config(c, true));
  Session cpu_session(cpu, engine_config(c, false), {200, 400});
  Session cuda_session(*cuda, engine_config(c, true), {200, 400});
  feed_both(cpu_session, cuda_session, config, c);
}

// The model is loaded on the last device and run by a thread whose current device is the first.
TEST_F(CudaBackend, TakesStepsOfAnyThread) {
  int devices = 0;
  ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
  if (devices < 2) {
    GTEST_SKIP() << "of one device every thread is on the right one";
  }
  const Case c = plain_case("anywhere", "llama", kvcache::RuleKind::dms, ops::EntryFormat::bf16);
  const model::ModelSpec config = config_of(c);
  const model::Model model(config, weights_of(config));
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

// A trained model makes its own decisions. Rounding may change a close decision, and with it what
// later tokens see: counts agree to one percent.
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
  const auto tokens = random_tokens(900, cpu->model.spec().vocab);
  Session on_cpu(*cpu->backend, cpu->engine, {900, 900});
  Session on_cuda(*cuda->backend, cuda->engine, {900, 900});
  std::vector<float> expected(static_cast<std::size_t>(cpu->model.spec().vocab));
  std::vector<float> got(expected.size());
  // A prompt, then one token after another.
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

// DMC with its own channels and weights, and an offset at which half of the tokens merge.
TEST_F(CudaBackend, MergesAsTheCpuDoes) {
  const Case c{"dmc",
               "llama",
               64,
               2,
               false,
               kvcache::RuleKind::dmc,
               ops::EntryFormat::bf16,
               WeightStorage::as_stored,
               0.0};
  model::ModelSpec config = config_of(c);
  config.dmc->offset = 0.0F;
  const model::Model model(config, weights_of(config));
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
  EXPECT_LT(live, 0.8 * 400 * config.layer_count() * config.attention().kv_heads);
  EXPECT_NEAR(static_cast<double>(on_cuda.usage().live_entries), live, 0.02 * live);
}

}  // namespace
}  // namespace winnow::engine::testing
