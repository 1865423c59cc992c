// Models with recurrent layers on a CUDA device: the states of several sequences, of forks and of
// prefixes, on their way to the host, and with little room for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/llm_session.h"
#include "engine/cpu_runner.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/cuda_backend_testing.h"
#include "engine/engine.h"
#include "model/tiny_model.h"

namespace winnow::engine::testing {
namespace {

constexpr kvcache::SequenceLimits kLimits{200, 400};

class CudaHybrid : public OnDevice<::testing::TestWithParam<const char*>> {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (!IsSkipped()) {
      backend_ = make_backend(model_, options_);
      runner_ = backend_->make_runner(options_);
    }
  }

  // Takes the next tokens of each sequence; returns the logits of the last one of each.
  std::vector<std::vector<float>> feed(Runner& runner, std::span<SequenceState* const> sequences,
                                       std::span<const std::size_t> counts) const {
    std::vector<SequenceShare> shares;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      shares.emplace_back().sequence = sequences[i];
      shares.back().tokens = std::span(tokens_).subspan(
          static_cast<std::size_t>(sequences[i]->length()) + 3 * i, counts[i]);
    }
    const auto vocab = static_cast<std::size_t>(config_.vocab);
    std::vector<float> logits(shares.size() * vocab, NAN);
    runner.forward(shares, {logits.data(), shares.size(), vocab}, {});
    std::vector<std::vector<float>> rows;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      rows.emplace_back(logits.begin() + static_cast<std::ptrdiff_t>(i * vocab),
                        logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * vocab));
    }
    return rows;
  }
  std::vector<float> feed(Runner& runner, SequenceState& sequence, std::size_t count) const {
    SequenceState* const one = &sequence;
    return feed(runner, std::span(&one, 1), std::span(&count, 1)).front();
  }
  // Feeds the rest in chunks and single tokens.
  std::vector<float> feed_rest(Runner& runner, SequenceState& sequence) const {
    std::vector<float> all;
    for (const std::size_t count : {1U, 1U, 30U, 1U, 2U, 1U}) {
      const auto logits = feed(runner, sequence, count);
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  [[nodiscard]] std::size_t state_bytes() const { return model_.cache_shape().states.bytes(); }

  Case case_ = [] {
    Case c = plain_case("hybrid", GetParam(), kvcache::RuleKind::dms, ops::EntryFormat::bf16);
    // If two experts are nearly equal, the device may choose another one than the CPU: an error of
    // 0.113 was measured.
    c.tolerance = config_of(c).experts() == nullptr ? 1e-1 : 1.5e-1;
    return c;
  }();
  model::ModelSpec config_ = config_of(case_);
  model::Model model_{config_, model::random_weights(config_, DType::bf16, 3)};
  EngineConfig options_ = engine_config(case_, true);
  std::vector<std::int32_t> tokens_ = random_tokens(900, config_.vocab);
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Runner> runner_;
};

INSTANTIATE_TEST_SUITE_P(Families, CudaHybrid,
                         ::testing::Values("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "lfm2",
                                           "bamba"),
                         [](const auto& info) { return std::string(info.param); });

// New and continued sequences together, in chunks of every length, then a token of each.
TEST_P(CudaHybrid, TakesSequencesOfSeveralLengthsAtOnce) {
  const CpuBackend cpu(model_);
  const auto host = cpu.make_runner(engine_config(case_, false));
  std::vector<std::unique_ptr<SequenceState>> on_host;
  std::vector<std::unique_ptr<SequenceState>> on_device;
  std::vector<SequenceState*> host_states;
  std::vector<SequenceState*> device_states;
  const std::vector<std::vector<std::size_t>> steps{
      {70, 3, 33, 1}, {2, 40, 1, 100, 5}, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}, {31, 1, 2, 1, 1}};
  for (const auto& counts : steps) {
    while (on_host.size() < counts.size()) {
      on_host.push_back(host->open(kLimits));
      on_device.push_back(runner_->open(kLimits));
      host_states.push_back(on_host.back().get());
      device_states.push_back(on_device.back().get());
    }
    const auto expected = feed(*host, host_states, counts);
    const auto got = feed(*runner_, device_states, counts);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      EXPECT_LE(relative_error(got[i], expected[i]), case_.tolerance) << "sequence " << i;
    }
  }
  EXPECT_EQ(runner_->state_bytes(), on_device.size() * state_bytes());
  for (std::size_t i = 0; i < on_host.size(); ++i) {
    EXPECT_LE(relative_error(on_device[i]->save().state, on_host[i]->save().state), 5e-2) << i;
  }
  on_device.clear();
  EXPECT_EQ(runner_->page_bytes(), 0U);
}

// A fork and its origin continue separately with the same bits.
TEST_P(CudaHybrid, ForksGoOnApart) {
  const auto origin = runner_->open(kLimits);
  const auto alone = runner_->open(kLimits);
  feed(*runner_, *origin, 100);
  feed(*runner_, *alone, 100);
  EXPECT_EQ(runner_->state_bytes(), 2 * state_bytes());
  const auto fork = origin->fork();
  ASSERT_NE(fork, nullptr);
  EXPECT_EQ(runner_->state_bytes(), 3 * state_bytes());
  EXPECT_EQ(fork->save().state, origin->save().state);
  const auto later = fork->fork();
  const auto expected = feed_rest(*runner_, *alone);
  EXPECT_EQ(feed_rest(*runner_, *fork), expected);
  EXPECT_EQ(feed_rest(*runner_, *origin), expected);
  EXPECT_EQ(feed_rest(*runner_, *later), expected);
}

TEST_P(CudaHybrid, SavedStatesGoOnHereAndOnTheCpu) {
  const CpuBackend cpu(model_);
  const auto host = cpu.make_runner(engine_config(case_, false));
  const auto whole = runner_->open(kLimits);
  feed(*runner_, *whole, 150);
  const kvcache::SavedSequence saved = whole->save();
  EXPECT_EQ(saved.state.size(), model_.cache_shape().states.size());

  const auto other = backend_->make_runner(options_);
  const auto restored = other->restore(kLimits, saved);
  ASSERT_NE(restored, nullptr);
  EXPECT_EQ(restored->save().state, saved.state);
  const auto moved = host->restore(kLimits, saved);
  ASSERT_NE(moved, nullptr);
  EXPECT_EQ(moved->save().state, saved.state);
  EXPECT_LE(relative_error(feed(*host, *moved, 20), feed(*other, *restored, 20)), case_.tolerance);

  const auto back = runner_->restore(kLimits, moved->save());
  ASSERT_NE(back, nullptr);
  EXPECT_EQ(back->save().state, moved->save().state);
  EXPECT_LE(relative_error(feed(*runner_, *back, 1), feed(*host, *moved, 1)), case_.tolerance);
  const auto again = runner_->restore(kLimits, saved);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(feed_rest(*runner_, *again), feed_rest(*runner_, *whole));
}

// Restored, forked and opened sequences only get a state if one is free.
TEST_P(CudaHybrid, CountsStates) {
  EngineConfig options = options_;
  options.max_sequences = 1;
  const auto runner = backend_->make_runner(options);
  auto first = runner->open(kLimits);
  EXPECT_EQ(runner->need(*first, 1).states, 1U);
  feed(*runner, *first, 10);
  EXPECT_EQ(runner->need(*first, 1).states, 0U);
  EXPECT_EQ(first->usage().state_bytes, state_bytes());
  const kvcache::SavedSequence saved = first->save();
  const auto second = first->fork();
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->fork(), nullptr);
  EXPECT_EQ(runner->restore(kLimits, saved), nullptr);
  const auto third = runner->open(kLimits);
  EXPECT_FALSE(runner->has_room(runner->need(*third, 1)));
  first.reset();
  EXPECT_TRUE(runner->has_room(runner->need(*third, 1)));
  feed(*runner, *third, 10);
  EXPECT_EQ(third->save().state, [&] {
    const auto fresh = runner_->open(kLimits);
    feed(*runner_, *fresh, 10);
    return fresh->save().state;
  }()) << "a state that was used before";
}

// More requests than there are states and pages for: some wait, some restart, all finish.
TEST_P(CudaHybrid, ServesManyWithLittleRoom) {
  const auto serve = [&](std::size_t bytes, int sequences, bool reuses) {
    EngineConfig options = options_;
    options.step_tokens = 256;
    options.cache.max_bytes = bytes;
    options.max_sequences = sequences;
    options.reuse_prefixes = reuses;
    Engine engine(*backend_, options);
    std::map<RequestId, int> expected;
    for (int i = 0; i < 16; ++i) {
      Request request;
      request.prompt = random_tokens(10 + 17 * i, config_.vocab);
      request.max_tokens = 20 + i;
      request.samples = i % 5 == 0 ? 3 : 1;
      if (i % 5 == 0) {
        request.sampling.temperature = 1.0;
      }
      const int tokens = request.samples * request.max_tokens;
      expected[engine.submit(request)] = tokens;
    }
    std::map<RequestId, int> got;
    while (!engine.idle()) {
      for (const TokenEvent& event : engine.step()) {
        got[event.request] += event.token >= 0 ? 1 : 0;
        EXPECT_NE(event.finish, FinishReason::out_of_memory);
      }
    }
    EXPECT_EQ(got, expected);
    if (!reuses) {
      EXPECT_EQ(engine.page_bytes(), 0U);
    }
    return engine.stats().preemptions;
  };
  const std::size_t little = 4 * state_bytes() + (std::size_t{600} << 10);
  for (const bool reuses : {false, true}) {
    EXPECT_EQ(serve(std::size_t{64} << 20, 64, reuses), 0);
    serve(std::size_t{64} << 20, 2, reuses);
    serve(little, 64, reuses);
  }
}

TEST_P(CudaHybrid, PrefixesAreForked) {
  EngineConfig options = options_;
  options.reuse_prefixes = true;
  const auto answer = [&](Engine& by, std::size_t prompt) {
    Request request;
    request.prompt.assign(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(prompt));
    request.max_tokens = 1;
    request.samples = 3;
    by.submit(request);
    std::vector<TokenEvent> events;
    while (!by.idle()) {
      for (TokenEvent& event : by.step()) {
        events.push_back(std::move(event));
      }
    }
    return events;
  };
  Engine engine(*backend_, options);
  static_cast<void>(answer(engine, 500));
  const auto reused = answer(engine, 900);
  EXPECT_GT(engine.stats().reused_tokens, 0);
  options.reuse_prefixes = false;
  Engine anew(*backend_, options);
  const auto expected = answer(anew, 900);
  EXPECT_EQ(anew.page_bytes(), 0U);
  ASSERT_EQ(reused.size(), expected.size());
  for (std::size_t i = 0; i < reused.size(); ++i) {
    EXPECT_NEAR(reused[i].logprob, expected[i].logprob, 0.05);
  }
}

// Heads of four channels, with twice as many value heads as key heads; other kinds as small.
TEST_F(CudaBackend, TakesTinyRecurrentLayers) {
  for (const auto kind : winnow::testing::kRecurrentKinds) {
    SCOPED_TRACE(winnow::testing::recurrent_name(kind));
    const model::ModelSpec spec = winnow::testing::tiny_hybrid(kvcache::RuleKind::dense, kind);
    const model::Model model(spec, model::random_weights(spec, DType::bf16, 3));
    const Case c =
        plain_case("tiny", "qwen3_5_text", kvcache::RuleKind::dense, ops::EntryFormat::bf16);
    const CpuBackend cpu(model);
    const auto cuda = make_backend(model, engine_config(c, true));
    Session on_cpu(cpu, engine_config(c, false), kLimits);
    Session on_cuda(*cuda, engine_config(c, true), kLimits);
    const auto tokens = random_tokens(200, model.spec().vocab);
    std::size_t first = 0;
    for (const std::size_t count : {70U, 1U, 1U, 40U, 2U, 1U}) {
      std::vector<float> expected(static_cast<std::size_t>(model.spec().vocab));
      std::vector<float> got(expected.size());
      on_cpu.feed(std::span(tokens).subspan(first, count), expected);
      on_cuda.feed(std::span(tokens).subspan(first, count), got);
      EXPECT_LE(relative_error(got, expected), 5e-2) << "tokens from " << first;
      first += count;
    }
  }
}

}  // namespace
}  // namespace winnow::engine::testing
