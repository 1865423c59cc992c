// Adapters on a CUDA device, compared with the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/cpu_runner.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/cuda_backend_testing.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "model/random_adapter.h"

namespace winnow::engine::testing {
namespace {

using winnow::testing::random_adapter;
using Adapter = std::shared_ptr<const model::Lora>;

/// Sequences that begin with parts of one text and continue together.
class Batch {
 public:
  Batch(const Backend& backend, const EngineConfig& config,
        std::vector<const model::Lora*> adapters)
      : runner_(backend.make_runner(config)),
        adapters_(std::move(adapters)),
        vocab_(static_cast<std::size_t>(backend.spec().vocab)) {
    for (std::size_t i = 0; i < adapters_.size(); ++i) {
      sequences_.push_back(runner_->open({400, 500}));
    }
  }

  /// Takes the next `count` tokens of each of `which`; returns the logits of the last ones.
  std::vector<float> step(const std::vector<std::size_t>& which, std::span<const std::int32_t> text,
                          std::size_t count) {
    std::vector<SequenceShare> shares;
    for (const std::size_t i : which) {
      SequenceShare& share = shares.emplace_back();
      share.sequence = sequences_[i].get();
      share.tokens = text.subspan(static_cast<std::size_t>(sequences_[i]->length()) + i, count);
      share.adapter = adapters_[i];
    }
    std::vector<float> logits(which.size() * vocab_, NAN);
    runner_->forward(shares, {logits.data(), which.size(), vocab_}, {});
    return logits;
  }

 private:
  std::unique_ptr<Runner> runner_;
  std::vector<std::unique_ptr<SequenceState>> sequences_;
  std::vector<const model::Lora*> adapters_;
  std::size_t vocab_;
};

struct AdapterCase {
  Case model;
  int sequences = 64;  // of the engine: steps of many may be padded, steps of few are not
};

class CudaLora : public OnDevice<::testing::TestWithParam<AdapterCase>> {};

constexpr Case case_of(const char* name, const char* family, double tolerance, bool bias = false,
                       kvcache::RuleKind rule = kvcache::RuleKind::dms,
                       WeightStorage weights = WeightStorage::as_stored) {
  return {name, family, 64, 4, bias, rule, ops::EntryFormat::bf16, weights, tolerance};
}

// Tolerances are the same as without adapters (cuda_backend_testing.h). Plain layers, norms of
// queries and keys, norms over all heads after the products, biases, multipliers, layers with
// parallel parts or a feed-forward without a gate, soft caps.
INSTANTIATE_TEST_SUITE_P(
    Models, CudaLora,
    ::testing::Values(
        AdapterCase{case_of("llama", "llama", 2e-2)},
        AdapterCase{case_of("llama_few", "llama", 2e-2), 4},
        AdapterCase{case_of("llama_int8", "llama", 2e-2, true, kvcache::RuleKind::dense,
                            WeightStorage::int8)},
        AdapterCase{case_of("llama_tova", "llama", 1e-1, false, kvcache::RuleKind::tova)},
        AdapterCase{case_of("llama_quest", "llama", 2e-2, false, kvcache::RuleKind::quest)},
        AdapterCase{case_of("qwen3", "qwen3", 2e-2)},
        AdapterCase{case_of("qwen2", "qwen2", 2e-2, true)},
        AdapterCase{case_of("olmo2", "olmo2", 3e-2)},
        AdapterCase{case_of("gemma2", "gemma2", 5e-2)},
        AdapterCase{case_of("cohere", "cohere", 2e-2)},
        AdapterCase{case_of("nemotron", "nemotron", 4e-2)},
        AdapterCase{case_of("granite", "granite", 8e-2)}),
    [](const auto& info) { return std::string(info.param.model.name); });

TEST_P(CudaLora, ComputesWhatTheCpuComputes) {
  const Case& c = GetParam().model;
  const model::ModelSpec spec = config_of(c);
  model::Model reference(spec, weights_of(spec, host_format(engine_config(c, false))));
  model::Model model(spec, weights_of(spec));
  reference.draw_decisions({.rate = 0.7});
  model.draw_decisions({.rate = 0.7});
  const Adapter small = random_adapter(spec, 3, 0.5F, 5);
  const Adapter large = random_adapter(spec, 40, 0.5F, 6);
  EngineConfig options = engine_config(c, true);
  options.max_sequences = GetParam().sequences;
  const CpuBackend cpu_backend(reference);
  const auto cuda_backend = make_backend(model, options);
  const std::vector<const model::Lora*> adapters{small.get(), nullptr, large.get(), small.get()};
  Batch cpu(cpu_backend, engine_config(c, false), adapters);
  Batch cuda(*cuda_backend, options, adapters);
  const auto text = random_tokens(400, spec.vocab);
  const auto vocab = static_cast<std::size_t>(spec.vocab);
  // Prompts and steps; then as many others, so that one graph runs with other adapters.
  using Which = std::vector<std::size_t>;
  for (const auto& [which, count] :
       {std::pair{Which{0, 1, 2, 3}, 150U}, std::pair{Which{0, 1, 2, 3}, 1U},
        std::pair{Which{3, 2, 1, 0}, 1U}, std::pair{Which{1, 2}, 1U}, std::pair{Which{0, 3}, 1U},
        std::pair{Which{1}, 1U}, std::pair{Which{2}, 1U}, std::pair{Which{2, 1, 0}, 3U},
        std::pair{Which{0, 1, 2, 3}, 1U}}) {
    const std::vector<float> expected = cpu.step(which, text, count);
    const std::vector<float> got = cuda.step(which, text, count);
    for (std::size_t i = 0; i < which.size(); ++i) {
      const auto row = [&](const std::vector<float>& logits) {
        return std::span(logits).subspan(i * vocab, vocab);
      };
      EXPECT_LE(relative_error(row(got), row(expected)), c.tolerance)
          << "sequence " << which[i] << " of " << which.size() << ", " << count << " tokens";
    }
  }
}

TEST_P(CudaLora, ChangesWhatTheModelSays) {
  const Case& c = GetParam().model;
  const model::ModelSpec spec = config_of(c);
  const model::Model model(spec, weights_of(spec));
  const Adapter adapter = random_adapter(spec, 8, 0.5F, 5);
  EngineConfig options = engine_config(c, true);
  options.max_sequences = GetParam().sequences;
  const auto backend = make_backend(model, options);
  Batch batch(*backend, options, {adapter.get(), nullptr});
  const auto vocab = static_cast<std::size_t>(spec.vocab);
  const std::vector<std::int32_t> text(200, 7);
  for (const std::size_t count : {20U, 1U}) {
    const std::vector<float> logits = batch.step({0, 1}, text, count);
    EXPECT_GT(relative_error(std::span(logits).first(vocab), std::span(logits).subspan(vocab)),
              0.1);
  }
}

class CudaAdapters : public OnDevice<::testing::Test> {
 protected:
  const Case case_ = case_of("llama", "llama", 2e-2);
  const model::ModelSpec spec_ = config_of(case_);
  const model::Model model_{spec_, weights_of(spec_)};
};

TEST_F(CudaAdapters, PrefixesAreOfOneAdapter) {
  EngineConfig options = engine_config(case_, true);
  options.reuse_prefixes = true;
  const auto backend = make_backend(model_, options);
  Engine engine(*backend, options);
  const Adapter first = random_adapter(spec_, 8, 0.5F, 5);
  const Adapter second = random_adapter(spec_, 8, 0.5F, 6);
  const auto reused_by = [&](const Adapter& adapter) {
    const auto before = engine.stats().reused_tokens;
    Request request;
    request.prompt = random_tokens(300, spec_.vocab);
    request.max_tokens = 2;
    request.adapter = adapter;
    engine.submit(request);
    while (!engine.idle()) {
      engine.step();
    }
    return engine.stats().reused_tokens - before;
  };
  for (int i = 0; i < 2; ++i) {  // a state is stored where two prompts diverge
    reused_by(first);
  }
  EXPECT_GT(reused_by(first), 0);
  EXPECT_EQ(reused_by(second), 0);
  EXPECT_EQ(reused_by(nullptr), 0);
}

// A request with an adapter that the device does not support is refused; others continue.
TEST_F(CudaAdapters, RefusesRanksThatAreTooLarge) {
  const EngineConfig options = engine_config(case_, true);
  const auto backend = make_backend(model_, options);
  Engine engine(*backend, options);
  Request request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 2;
  request.adapter = random_adapter(spec_, 600, 0.5F, 5);
  EXPECT_NE(error_of([&] { engine.submit(request); }).find("an adapter of rank 600"),
            std::string::npos);
  request.adapter = random_adapter(spec_, 8, 0.5F, 5);
  engine.submit(request);
  int tokens = 0;
  while (!engine.idle()) {
    tokens += static_cast<int>(engine.step().size());
  }
  EXPECT_EQ(tokens, 2);
}

}  // namespace
}  // namespace winnow::engine::testing
