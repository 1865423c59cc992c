// States that were saved on one device and continue there or on another.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cuda/device.h"
#include "base/random.h"
#include "engine/cpu_runner.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/cuda_backend_testing.h"
#include "engine/cuda/pinned_copies.h"
#include "engine/engine.h"

namespace winnow::engine {
namespace {

using kvcache::RuleKind;
using testing::relative_error;

constexpr kvcache::SequenceLimits kLimits{200, 400};
constexpr int kPrompt = 150;

// A model (a case of cuda_backend_testing.h, or "llama") under a rule.
struct Cached {
  const char* model;
  RuleKind rule;
};

model::ModelSpec model_config(const Cached& what) {
  const RuleKind rule = what.rule;
  if (what.model != std::string_view("llama")) {
    return testing::config_of({what.model, "gemma4_text", 64, 4, false, rule,
                               ops::EntryFormat::bf16, WeightStorage::as_stored, 0.0});
  }
  model::ModelSpec config = winnow::testing::spec_of("llama", {.hidden = 256,
                                                               .layers = 2,
                                                               .heads = 4,
                                                               .kv_heads = 2,
                                                               .head_dim = 64,
                                                               .intermediate = 416,
                                                               .vocab = 1003,
                                                               .max_positions = 4096});
  if (rule == RuleKind::dmc) {
    config.dmc = model::DmcConfig{.offset = 0.0F};
  } else {
    config.dms = model::DmsConfig{.window = 40, .source = model::DmsConfig::Source::borrowed};
  }
  return config;
}

EngineConfig engine_config(RuleKind rule) {
  EngineConfig config;
  config.cache.rule = rule;
  config.cache.format = ops::EntryFormat::bf16;
  config.cache.window = kvcache::traits_of(rule).marks ? 40 : 0;
  config.cache.cr = 4.0;
  config.cache.max_bytes = std::size_t{1} << 27;
  return config;
}

class CudaSavedState : public ::testing::TestWithParam<Cached> {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
    EngineConfig on_device = config_;
    on_device.cuda_device = 0;
    model_.draw_decisions({.rate = 0.7});
    cuda_ = make_backend(model_, on_device);
    Random random(7);
    for (int i = 0; i < 300; ++i) {
      tokens_.push_back(static_cast<std::int32_t>(random.uniform() * 1003.0));
    }
  }

  /// Logits of the last of `count` more tokens.
  std::vector<float> feed(Runner& runner, SequenceState& sequence, int count) {
    SequenceShare share;
    share.sequence = &sequence;
    share.tokens = std::span(tokens_).subspan(static_cast<std::size_t>(sequence.length()),
                                              static_cast<std::size_t>(count));
    std::vector<float> logits(1003, NAN);
    runner.forward(std::span(&share, 1), {logits.data(), 1, logits.size()}, {});
    return logits;
  }

  /// Feeds a chunk, single tokens and a chunk.
  std::vector<float> feed_rest(Runner& runner, SequenceState& sequence) {
    std::vector<float> all;
    for (const int count : {1, 1, 1, 30, 1, 60, 1}) {
      const auto logits = feed(runner, sequence, count);
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  static void expect_same(const kvcache::SavedSequence& a, const kvcache::SavedSequence& b,
                          bool to_the_bit = true) {
    EXPECT_EQ(a.archived, b.archived);
    EXPECT_EQ(a.entries.size(), b.entries.size());
    EXPECT_TRUE(!to_the_bit || a.entries == b.entries);
    EXPECT_EQ(a.marks, b.marks);
    EXPECT_EQ(a.logits, b.logits);
    EXPECT_EQ(a.open, b.open);
    EXPECT_EQ(a.positions, b.positions);
    EXPECT_EQ(a.attention, b.attention);
    EXPECT_EQ(a.query_statistics, b.query_statistics);
  }

  EngineConfig config_ = engine_config(GetParam().rule);
  model::Model model_{model_config(GetParam()), testing::weights_of(model_config(GetParam()))};
  CpuBackend cpu_{model_};
  std::unique_ptr<Backend> cuda_;
  std::vector<std::int32_t> tokens_;
};

INSTANTIATE_TEST_SUITE_P(
    Rules, CudaSavedState,
    ::testing::Values(Cached{"llama", RuleKind::dense}, Cached{"llama", RuleKind::dms},
                      Cached{"llama", RuleKind::dmc}, Cached{"llama", RuleKind::streaming},
                      Cached{"llama", RuleKind::tova}, Cached{"llama", RuleKind::h2o},
                      Cached{"llama", RuleKind::quest}, Cached{"llama", RuleKind::random},
                      Cached{"llama", RuleKind::vatp}, Cached{"llama", RuleKind::dms_quest},
                      Cached{"llama", RuleKind::dms_budget}, Cached{"llama", RuleKind::snapkv},
                      Cached{"llama", RuleKind::pyramidkv}, Cached{"llama", RuleKind::rkv},
                      Cached{"llama", RuleKind::expected_attention},
                      // Layers that share entries, with heads of two widths or numbers.
                      Cached{"gemma4", RuleKind::dense}, Cached{"gemma4", RuleKind::dms},
                      Cached{"gemma4", RuleKind::streaming}, Cached{"gemma4_moe", RuleKind::dms},
                      Cached{"gemma4_moe", RuleKind::streaming}),
    [](const auto& info) {
      return std::string(info.param.model) + "_" + std::string(kvcache::rule_name(info.param.rule));
    });

TEST_P(CudaSavedState, GoesOnWithTheSameLogits) {
  const auto runner = cuda_->make_runner(config_);
  const auto whole = runner->open(kLimits);
  feed(*runner, *whole, kPrompt);
  const kvcache::SavedSequence saved = whole->save();
  const auto other = cuda_->make_runner(config_);
  const auto restored = other->restore(kLimits, saved);
  ASSERT_NE(restored, nullptr);
  expect_same(restored->save(), saved);
  EXPECT_EQ(restored->usage().per_head, whole->usage().per_head);
  // Each runner of the general path tries algorithms for its products: sums may have another order.
  const bool to_the_bit = GetParam().model == std::string_view("llama");
  EXPECT_LE(relative_error(feed_rest(*other, *restored), feed_rest(*runner, *whole)),
            to_the_bit ? 0.0 : 1e-4);
  expect_same(restored->save(), whole->save(), to_the_bit);
}

// Copies in page-locked memory: the same state, while others take its slot and its pages, and after
// a copy whose memory was used again.
TEST_P(CudaSavedState, ComesBackFromTheHostsMemory) {
  const auto runner = cuda_->make_runner(config_);
  const auto never = [] { return false; };
  auto sequence = runner->open(kLimits);
  feed(*runner, *sequence, kPrompt);
  const kvcache::SavedSequence saved = sequence->save();
  const auto copies = runner->make_host_copies(std::size_t{1} << 24);
  auto dropped = copies->copy(*sequence, never);
  ASSERT_NE(dropped, nullptr);
  const std::size_t bytes = copies->used_bytes();
  dropped.reset();
  EXPECT_EQ(copies->used_bytes(), 0U);
  const auto copy = copies->copy(*sequence, never);
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(copies->used_bytes(), bytes);
  EXPECT_EQ(copy->length(), kPrompt);
  const auto kept = sequence->fork();
  sequence.reset();
  auto other = runner->open(kLimits);
  std::ranges::reverse(tokens_);
  feed(*runner, *other, kPrompt);
  std::ranges::reverse(tokens_);
  const auto second = copies->copy(*other, never);
  ASSERT_NE(second, nullptr);
  expect_same(copy->save().value(), saved);
  const auto restored = copies->restore(kLimits, *copy).sequence;
  ASSERT_NE(restored, nullptr);
  expect_same(restored->save(), saved);
  EXPECT_EQ(restored->usage().per_head, kept->usage().per_head);
  const bool to_the_bit = GetParam().model == std::string_view("llama");
  EXPECT_LE(relative_error(feed_rest(*runner, *restored), feed_rest(*runner, *kept)),
            to_the_bit ? 0.0 : 1e-4);
  expect_same(copy->save().value(), saved);  // it stays what it was
}

// A flipped bit anywhere in the pages or their checksums.
TEST_P(CudaSavedState, ADamagedCopyDoesNotComeBack) {
  const auto runner = cuda_->make_runner(config_);
  auto sequence = runner->open(kLimits);
  feed(*runner, *sequence, kPrompt);
  const kvcache::SavedSequence saved = sequence->save();
  const auto copies = runner->make_host_copies(std::size_t{1} << 24);
  const auto copy = copies->copy(*sequence, [] { return false; });
  ASSERT_NE(copy, nullptr);
  sequence.reset();
  EXPECT_EQ(runner->page_bytes(), 0U);
  const std::span<std::byte> memory = PinnedCopies::memory_of(*copy);
  const std::size_t sums = static_cast<std::size_t>(cuda_->cache_shape().all_heads()) * 8;
  const std::size_t pages = memory.size() - 3 * sums;  // behind them: sums, sums, tables
  for (const std::size_t at : {std::size_t{0}, pages / 3, pages - 1, pages, pages + sums - 1}) {
    memory[at] ^= std::byte{0x80};
    const RestoredCopy restored = copies->restore(kLimits, *copy);
    EXPECT_TRUE(restored.damaged) << at;
    EXPECT_EQ(restored.sequence, nullptr) << at;
    EXPECT_EQ(runner->page_bytes(), 0U) << at;
    EXPECT_EQ(copy->save(), std::nullopt) << at;
    memory[at] ^= std::byte{0x80};
  }
  const RestoredCopy restored = copies->restore(kLimits, *copy);
  EXPECT_FALSE(restored.damaged);
  ASSERT_NE(restored.sequence, nullptr);
  expect_same(restored.sequence->save(), saved);
}

// Copies of two sequences in turn, many more than staging memory holds: each of them takes the
// place of one that may still be on its way, while steps overwrite the pages of the last one.
TEST_P(CudaSavedState, CopiesInARowDoNotMixUp) {
  const auto runner = cuda_->make_runner(config_);
  const auto first = runner->open(kLimits);
  feed(*runner, *first, kPrompt);
  const auto second = runner->open(kLimits);
  std::ranges::reverse(tokens_);
  feed(*runner, *second, kPrompt);
  const std::array saved{first->save(), second->save()};
  std::size_t bytes = 0;
  {
    const auto copies = runner->make_host_copies(std::size_t{1} << 24);
    const auto copy = copies->copy(*first, [] { return false; });
    bytes = copies->used_bytes();
  }
  const auto copies = runner->make_host_copies(bytes * 5 / 2);
  std::deque<std::pair<std::unique_ptr<HostCopy>, std::size_t>> made;
  for (int i = 0; i < 40; ++i) {
    const std::size_t of = i % 3 == 0 ? 0 : 1;
    auto fork = (of == 0 ? first : second)->fork();
    ASSERT_NE(fork, nullptr);
    auto copy = copies->copy(*fork, [&] {
      const bool some = !made.empty();
      if (some) {
        made.pop_front();
      }
      return some;
    });
    ASSERT_NE(copy, nullptr);
    feed(*runner, *fork, 20);
    made.emplace_back(std::move(copy), of);
  }
  EXPECT_FALSE(made.empty());
  for (const auto& [copy, of] : made) {
    expect_same(copy->save().value(), saved[of]);
  }
}

TEST_P(CudaSavedState, TheHostsMemoryIsBounded) {
  const auto runner = cuda_->make_runner(config_);
  const auto sequence = runner->open(kLimits);
  feed(*runner, *sequence, kPrompt);
  const auto never = [] { return false; };
  std::size_t bytes = 0;
  {
    const auto copies = runner->make_host_copies(std::size_t{1} << 24);
    const auto copy = copies->copy(*sequence, never);
    bytes = copies->used_bytes();
  }
  EXPECT_EQ(runner->make_host_copies(bytes - 1)->copy(*sequence, never), nullptr);
  const auto copies = runner->make_host_copies(bytes + bytes / 2);
  auto first = copies->copy(*sequence, never);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(copies->copy(*sequence, never), nullptr);
  int asked = 0;
  const auto second = copies->copy(*sequence, [&] {
    first.reset();
    return ++asked == 1;
  });
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(asked, 1);
  expect_same(second->save().value(), sequence->save());
}

TEST_P(CudaSavedState, GoesOnOnTheOtherDevice) {
  const auto host = cpu_.make_runner(config_);
  const auto device = cuda_->make_runner(config_);
  for (const bool from_host : {true, false}) {
    Runner& first = from_host ? *host : *device;
    Runner& second = from_host ? *device : *host;
    const auto whole = first.open(kLimits);
    feed(first, *whole, kPrompt);
    const kvcache::SavedSequence saved = whole->save();
    const auto moved = second.restore(kLimits, saved);
    ASSERT_NE(moved, nullptr);
    expect_same(moved->save(), saved);
    // One token only: if rounding decides what is dropped, later ones may see other entries.
    // With experts, rounding may choose other ones.
    const double tolerance = model_.spec().experts() != nullptr ? 1.5e-1 : 3e-2;
    EXPECT_LE(relative_error(feed(second, *moved, 1), feed(first, *whole, 1)), tolerance);
  }
}

// Speculation relies on this: the copy from before a draft behaves as if there had been no draft.
TEST_P(CudaSavedState, AWrongDraftLeavesNothing) {
  const auto runner = cuda_->make_runner(config_);
  auto sequence = runner->open({kPrompt, 400});
  feed(*runner, *sequence, kPrompt);
  for (const int drafted : {1, 5, 15}) {
    const kvcache::SavedSequence saved = sequence->save();
    auto before = sequence->fork();
    ASSERT_NE(before, nullptr);
    feed(*runner, *sequence, 1 + drafted);
    sequence = std::move(before);
    expect_same(sequence->save(), saved);
    feed(*runner, *sequence, 1);
  }
}

// An answer to a repetitive text.
struct Drafted {
  std::vector<TokenEvent> events;
  EngineStats stats;
};

Drafted answer(const Backend& backend, EngineConfig config, int draft_tokens, double temperature,
               int logprobs) {
  config.draft_tokens = draft_tokens;
  Engine engine(backend, config);
  Request request;
  for (int i = 0; i < kPrompt; ++i) {
    request.prompt.push_back(i % 7 + 20 * (i % 3));
  }
  request.max_tokens = 120;
  request.sampling = {.temperature = temperature, .seed = 3};
  request.rules.allowed =
      logprobs < 0 ? std::vector<std::int32_t>() : std::vector<std::int32_t>{0, 1, 2, 3};
  request.logprobs = logprobs;
  engine.submit(request);
  Drafted result;
  while (!engine.idle()) {
    for (TokenEvent& event : engine.step()) {
      result.events.push_back(std::move(event));
    }
  }
  result.stats = engine.stats();
  return result;
}

TEST_P(CudaSavedState, DraftsChangeAnswersByRoundingOnly) {
  const Drafted plain = answer(*cuda_, config_, 0, 0.0, 1);
  const Drafted drafted = answer(*cuda_, config_, 6, 0.0, 1);
  ASSERT_EQ(drafted.events.size(), plain.events.size());
  EXPECT_EQ(plain.stats.drafted_tokens, 0);
  EXPECT_GT(drafted.stats.accepted_tokens, 0);
  EXPECT_EQ(drafted.stats.steps + drafted.stats.accepted_tokens, plain.stats.steps);
  const bool rounding_decides = config_.cache.traits().drops() || config_.cache.traits().selects ||
                                model_.spec().experts() != nullptr;
  for (std::size_t i = 0; i < plain.events.size() && !rounding_decides; ++i) {
    ASSERT_NEAR(drafted.events[i].logprob, plain.events[i].logprob, 0.2) << i;
    if (drafted.events[i].token != plain.events[i].token) {
      break;  // two tokens were nearly equally likely
    }
  }
  // Greedy tokens, chosen by the runner, and sampled ones.
  for (const double temperature : {0.0, 1.0}) {
    const Drafted other = answer(*cuda_, config_, 15, temperature, -1);
    EXPECT_EQ(other.events.size(), plain.events.size());
    EXPECT_EQ(other.stats.steps + other.stats.accepted_tokens, plain.stats.steps);
  }
}

}  // namespace
}  // namespace winnow::engine
