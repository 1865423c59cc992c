// Copies in the host's memory of which each rank has a part.
#include "engine/ranks/ranked_copies.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/damaging_backend.h"
#include "engine/engine_world.h"
#include "engine/saved_copies.h"

namespace winnow::engine {
namespace {

using kvcache::RuleKind;
using testing::DamagingBackend;
using testing::RankedModel;

void flip_last(HostCopy& copy) {
  entries_of(copy).back() ^= std::byte{1};
}

std::unique_ptr<const Backend> damage(std::unique_ptr<const Backend> first) {
  return std::make_unique<DamagingBackend>(std::move(first), flip_last);
}

/// Under DMS, by whose decisions the parts differ in size.
class RankedCopiesTest : public ::testing::TestWithParam<int> {
 protected:
  [[nodiscard]] RankedModel ranked(const RankedModel::Wrap& wrap = {}) const {
    return {model_.spec(), DType::f32, testing::kSeed, GetParam(), model_.drawn_decisions(), wrap};
  }
  static std::unique_ptr<SequenceState> read_prompt(Runner& runner) {
    auto sequence = runner.open({48, 108});
    std::vector<std::int32_t> prompt(48, 3);
    SequenceShare share;
    share.sequence = sequence.get();
    share.tokens = prompt;
    std::vector<std::int32_t> next(1);
    runner.forward(std::span(&share, 1), {}, next);
    return sequence;
  }

  const model::Model& model_ = testing::model_for(RuleKind::dms, DType::f32);
  EngineConfig config_ = testing::roomy(RuleKind::dms);
};

// Three and four ranks hold two KV heads.
INSTANTIATE_TEST_SUITE_P(Ranks, RankedCopiesTest, ::testing::Values(1, 2, 3, 4));

TEST_P(RankedCopiesTest, AreWhatWasCopied) {
  const RankedModel whole = ranked();
  const auto runner = whole.backend().make_runner(config_);
  auto sequence = read_prompt(*runner);
  const kvcache::SavedSequence saved = sequence->save();
  const std::size_t pages = runner->page_bytes();
  const auto copies = runner->make_host_copies(std::size_t{1} << 20);
  const auto copy = copies->copy(*sequence, [] { return false; });
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(copy->length(), 48);
  EXPECT_GE(copies->used_bytes(), kvcache::bytes_of(saved));
  sequence.reset();
  EXPECT_EQ(runner->page_bytes(), 0U);
  EXPECT_EQ(copy->save(), saved);
  const RestoredCopy restored = copies->restore({48, 108}, *copy);
  EXPECT_FALSE(restored.damaged);
  ASSERT_NE(restored.sequence, nullptr);
  EXPECT_EQ(restored.sequence->save(), saved);
  EXPECT_EQ(restored.sequence->length(), 48);
  EXPECT_EQ(runner->page_bytes(), pages);
}

// A part that finds room is dropped where another one finds none.
TEST_P(RankedCopiesTest, AreWholeOrNotThere) {
  const RankedModel whole = ranked();
  const auto runner = whole.backend().make_runner(config_);
  const auto sequence = read_prompt(*runner);
  const auto never = [] { return false; };
  std::size_t bytes = 0;
  {
    const auto copies = runner->make_host_copies(std::size_t{1} << 20);
    const auto copy = copies->copy(*sequence, never);
    bytes = copies->used_bytes();
  }
  int fitted = 0;
  for (std::size_t percent = 50; percent <= 150; percent += 10) {
    const auto copies = runner->make_host_copies(bytes * percent / 100);
    auto first = copies->copy(*sequence, never);
    EXPECT_EQ(copies->used_bytes(), first ? bytes : 0) << percent;
    EXPECT_TRUE(first || percent < 150);
    fitted += first ? 1 : 0;
    if (first) {
      EXPECT_EQ(copies->copy(*sequence, never), nullptr);
      const auto second =
          copies->copy(*sequence, [&] { return std::exchange(first, nullptr) != nullptr; });
      EXPECT_NE(second, nullptr);
      EXPECT_EQ(copies->used_bytes(), bytes);
    }
  }
  EXPECT_GT(fitted, 0);
  EXPECT_LT(fitted, 11);
}

TEST_P(RankedCopiesTest, OneDamagedPartIsEnough) {
  const RankedModel whole = ranked(damage);
  const auto runner = whole.backend().make_runner(config_);
  auto sequence = read_prompt(*runner);
  const auto copies = runner->make_host_copies(std::size_t{1} << 20);
  const auto copy = copies->copy(*sequence, [] { return false; });
  sequence.reset();
  const RestoredCopy restored = copies->restore({48, 108}, *copy);
  EXPECT_TRUE(restored.damaged);
  EXPECT_EQ(restored.sequence, nullptr);
  EXPECT_EQ(runner->page_bytes(), 0U);
  EXPECT_EQ(copy->save(), std::nullopt);
}

TEST_P(RankedCopiesTest, TakeUpPreemptedSequences) {
  Request request;
  request.prompt.assign(48, 3);
  request.max_tokens = 60;
  request.samples = 4;
  request.sampling = {.temperature = 1.0, .seed = 9};
  std::size_t bytes = 0;  // of a sample, at its end
  const auto run = [&](const RankedModel& whole) {
    std::map<int, std::vector<std::int32_t>> tokens;
    Engine engine(whole.backend(), config_);
    const RequestId id = engine.submit(request);
    while (!engine.idle()) {
      for (const TokenEvent& event : engine.step()) {
        tokens[event.sample].push_back(event.token);
      }
    }
    bytes = engine.take_usage(id, 0).bytes;
    return std::pair(tokens, engine.stats());
  };
  const RankedModel sound = ranked();
  const auto expected = run(sound).first;
  config_.cache.max_bytes = bytes * 3 / 2;
  config_.host_bytes = std::size_t{1} << 24;
  const auto [moved, stats] = run(sound);
  EXPECT_EQ(moved, expected);
  EXPECT_GT(stats.host->restored, 0);
  EXPECT_EQ(stats.host->saved, stats.preemptions);
  EXPECT_EQ(stats.host->damaged, 0);
  EXPECT_EQ(stats.host->bytes, 0U);
  const auto [computed, damaged] = run(ranked(damage));
  EXPECT_EQ(computed, expected);
  EXPECT_GT(damaged.host->damaged, 0);
  EXPECT_EQ(damaged.host->restored, 0);
  EXPECT_EQ(damaged.host->bytes, 0U);
}

}  // namespace
}  // namespace winnow::engine
