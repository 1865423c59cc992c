// KV heads that several ranks hold: each computes the same entries and decisions for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/cpu_runner.h"
#include "engine/ranks/ranked_model.h"
#include "engine/ranks/saved_shards.h"
#include "kvcache/every_rule.h"
#include "model/tiny_model.h"
#include "parallel/thread_ranks.h"

namespace winnow::engine {
namespace {

using kvcache::RuleKind;
using kvcache::SavedSequence;
using winnow::testing::kTinyWindow;

constexpr std::uint64_t kSeed = 5;
constexpr int kPrompt = 90;
constexpr kvcache::DrawnDecisions kDrawn{.rate = 0.7, .spread = 0.3};

EngineConfig config_for(RuleKind rule, DType type) {
  EngineConfig config;
  config.cache = {.rule = rule,
                  .format = type == DType::f32 ? ops::EntryFormat::f32 : ops::EntryFormat::bf16,
                  .max_bytes = std::size_t{1} << 24,
                  .window = kvcache::traits_of(rule).marks ? kTinyWindow : 0,
                  .cr = 2.0};
  config.compute = type;
  return config;
}

// Reads a text in two prompts and a few single tokens.
SavedSequence read_text(const Backend& backend, const EngineConfig& config, int vocab) {
  const auto runner = backend.make_runner(config);
  const auto sequence = runner->open({kPrompt, kPrompt + 10});
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < kPrompt; ++i) {
    tokens.push_back((i * i + 3 * i) % vocab);
  }
  std::vector<float> logits(static_cast<std::size_t>(vocab));
  const auto feed = [&](std::size_t first, std::size_t count) {
    const SequenceShare share{sequence.get(), std::span(tokens).subspan(first, count), 1, {}};
    runner->forward(std::span(&share, 1), {logits.data(), 1, logits.size()}, {});
  };
  feed(0, 40);
  feed(40, 44);
  for (std::size_t i = 84; i < kPrompt; ++i) {
    feed(i, 1);
  }
  return sequence->save();
}

// What each rank holds in the end.
std::vector<SavedSequence> parts_of(const model::ModelSpec& spec, const EngineConfig& config,
                                    int ranks, bool draw) {
  const auto members = parallel::make_thread_ranks(ranks);
  std::vector<SavedSequence> parts(members.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < members.size(); ++i) {
    threads.emplace_back([&, i] {
      const model::Shard shard{static_cast<int>(i), ranks};
      model::Model part(model::shard_spec(spec, shard),
                        model::random_weights(spec, config.compute, kSeed, {}, shard),
                        model::ModelPart{shard, spec});
      if (draw) {
        part.draw_decisions(kDrawn);
      }
      parts[i] = read_text(CpuBackend(part, members[i].get()), config, spec.vocab);
    });
  }
  threads.clear();
  return parts;
}

// The same entries, to the bit, on all ranks that hold a head. Returns those of all heads.
SavedSequence expect_same_heads(const model::ModelSpec& spec, RuleKind rule, int ranks, DType type,
                                bool draw = false) {
  SCOPED_TRACE(ranks);
  const EngineConfig config = config_for(rule, type);
  const std::vector<SavedSequence> parts = parts_of(spec, config, ranks, draw);
  const kvcache::CacheShape shape = model::cache_shape(spec);
  const SavedForm form{
      spec, shape, shape.page_layout(config.cache.format), {config.cache, {kPrompt, kPrompt + 10}}};
  const SavedSequence joined = join_saved(form, parts);
  for (int rank = 0; rank < ranks; ++rank) {
    SCOPED_TRACE(rank);
    EXPECT_EQ(shard_saved(form, joined, {rank, ranks}), parts[static_cast<std::size_t>(rank)]);
  }
  return joined;
}

// The largest difference between two lists of fp32 entries.
float largest_difference(std::span<const std::byte> a, std::span<const std::byte> b) {
  float largest = 0.0F;
  for (std::size_t at = 0; at < a.size(); at += sizeof(float)) {
    float left = 0.0F;
    float right = 0.0F;
    std::memcpy(&left, &a[at], sizeof(float));
    std::memcpy(&right, &b[at], sizeof(float));
    largest = std::max(largest, std::abs(left - right));
  }
  return largest;
}

// And as one rank keeps them, to rounding.
void expect_same_heads(const model::ModelSpec& spec, RuleKind rule, int ranks, bool draw = false) {
  const SavedSequence joined = expect_same_heads(spec, rule, ranks, DType::f32, draw);
  model::Model model(spec, model::random_weights(spec, DType::f32, kSeed));
  if (draw) {
    model.draw_decisions(kDrawn);
  }
  const SavedSequence whole =
      read_text(CpuBackend(model), config_for(rule, DType::f32), spec.vocab);
  EXPECT_EQ(joined.archived, whole.archived);
  EXPECT_EQ(joined.positions, whole.positions);
  EXPECT_EQ(joined.marks, whole.marks);
  ASSERT_EQ(joined.entries.size(), whole.entries.size());
  EXPECT_LE(largest_difference(joined.entries, whole.entries), 1e-3F);
}

std::vector<RuleKind> rules() {
  return winnow::testing::rules_that(
      [](const kvcache::RuleTraits& rule) { return !rule.needs_groups() && !rule.calibrated; });
}

class HeldHeads : public ::testing::TestWithParam<RuleKind> {};
INSTANTIATE_TEST_SUITE_P(Rules, HeldHeads, ::testing::ValuesIn(rules()),
                         winnow::testing::name_of_rule);

TEST_P(HeldHeads, AreTheSameOnAllRanksThatHoldThem) {
  const model::ModelSpec two = winnow::testing::tiny_model(GetParam(), {.heads = 4});
  const model::ModelSpec one = winnow::testing::tiny_model(GetParam(), {.heads = 6, .kv_heads = 1});
  expect_same_heads(two, GetParam(), 3);
  expect_same_heads(two, GetParam(), 4);
  expect_same_heads(one, GetParam(), 3);
  expect_same_heads(one, GetParam(), 4);
  expect_same_heads(two, GetParam(), 3, DType::bf16);
  expect_same_heads(one, GetParam(), 4, DType::bf16);
}

// Layers with two KV heads and with one, whose norms, values and head widths differ, too.
TEST(HeldHeadsOfFamilies, AreTheSameWhereLayersDiffer) {
  for (const nlohmann::json& keys : winnow::testing::gemma4_keys()) {
    const int layers = static_cast<int>(keys.at("layer_types").size());
    const model::ModelSpec spec =
        winnow::testing::spec_of("gemma4_text", {.layers = layers, .heads = 4}, keys);
    for (const int ranks : {2, 3, 4}) {
      expect_same_heads(spec, RuleKind::dense, ranks);
    }
  }
}

// Norms over all heads together count each head once, wherever it lies.
TEST(HeldHeadsOfFamilies, AreNormedTogether) {
  const model::ModelSpec spec = winnow::testing::spec_of("olmo2", {.heads = 6, .kv_heads = 2});
  for (const int ranks : {3, 5}) {
    expect_same_heads(spec, RuleKind::dense, ranks);
  }
}

// One channel decides for the whole layer.
TEST(HeldHeadsOfFamilies, FollowTheLayersDecision) {
  model::ModelSpec spec = winnow::testing::tiny_model(RuleKind::dms);
  spec.dms->per_layer = true;
  expect_same_heads(spec, RuleKind::dms, 4);
}

// A head's decisions depend on its place in the whole layer.
TEST(HeldHeadsOfFamilies, FollowDrawnDecisions) {
  for (const RuleKind rule : {RuleKind::dms, RuleKind::dmc}) {
    const model::ModelSpec spec = winnow::testing::tiny_model(rule, {.heads = 8, .kv_heads = 4});
    for (const int ranks : {2, 4, 8}) {
      expect_same_heads(spec, rule, ranks, /*draw=*/true);
    }
  }
}

// Probes decide on each rank by themselves; gates take all queries of a group.
TEST(HeldHeadsOfFamilies, FollowProbes) {
  using Kind = model::AdapterSpec::Kind;
  model::ModelSpec spec = winnow::testing::tiny_model(RuleKind::dms);
  spec.dms->source = model::DmsConfig::Source::adapter;
  spec.dms->offset = 0.0F;
  const std::array probes{model::AdapterSpec{.kind = Kind::linear},
                          model::AdapterSpec{.kind = Kind::mlp, .width = 8},
                          model::AdapterSpec{.kind = Kind::gate, .width = 8, .sinks = 2}};
  for (const model::AdapterSpec& probe : probes) {
    spec.dms->adapter = probe;
    spec.dms->offset = probe.kind == Kind::gate ? 50.0F : 0.0F;
    for (const bool per_layer : {false, true}) {
      spec.dms->per_layer = per_layer;
      expect_same_heads(spec, RuleKind::dms, 3);
      expect_same_heads(spec, RuleKind::dms, 4);
    }
  }
}

struct Held {
  std::int64_t live_entries;
  CacheUsage usage;
  std::size_t page_bytes;
  std::size_t capacity;
};

Held held_by(const Backend& backend, const EngineConfig& config) {
  const auto runner = backend.make_runner(config);
  const auto sequence = runner->open({40, 50});
  const std::vector<std::int32_t> tokens(40, 3);
  std::vector<std::int32_t> next(1);
  const SequenceShare share{sequence.get(), tokens, 1, {}};
  runner->forward(std::span(&share, 1), {}, next);
  return {sequence->live_entries(), sequence->usage(), runner->page_bytes(),
          runner->capacity_bytes()};
}

double ratio(std::size_t a, std::size_t b) {
  return static_cast<double>(a) / static_cast<double>(b);
}

// A head of the whole model counts once, with one KV head in every layer and in some.
TEST(HeldHeadsUsage, CountsEntriesOnceAndBytesAsHeld) {
  const EngineConfig config = config_for(RuleKind::dense, DType::f32);
  for (const model::ModelSpec& spec :
       {winnow::testing::spec_of("llama", {.heads = 4, .kv_heads = 1}),
        winnow::testing::spec_of("gemma4_text", {.heads = 4}, winnow::testing::gemma4_keys()[1])}) {
    const model::Model model(spec, model::random_weights(spec, DType::f32, kSeed));
    const Held alone = held_by(CpuBackend(model), config);
    for (const int ranks : {2, 4}) {
      const testing::RankedModel split(spec, DType::f32, kSeed, ranks, std::nullopt);
      const Held together = held_by(split.backend(), config);
      EXPECT_EQ(together.live_entries, alone.live_entries);
      EXPECT_EQ(together.usage.live_entries, alone.live_entries);
      EXPECT_EQ(together.usage.dense_entries, alone.usage.dense_entries);
      EXPECT_EQ(together.usage.per_head, alone.usage.per_head);
      EXPECT_GT(together.usage.bytes, alone.usage.bytes);
      EXPECT_NEAR(ratio(together.usage.dense_bytes, together.usage.bytes), 1.0, 0.01);
      EXPECT_GT(together.page_bytes, alone.page_bytes);
      EXPECT_NEAR(ratio(together.capacity, alone.capacity), 1.0, 0.01);
    }
  }
}

TEST(HeldHeadsUsage, IsThatOfAllRanks) {
  const kvcache::CacheShape shape =
      model::cache_shape(winnow::testing::spec_of("llama", {.heads = 6, .kv_heads = 2}), 5);
  EXPECT_EQ(shape.all_heads(), 4);
  EXPECT_EQ(shape.holders, (std::vector{2, 3, 2, 3}));
  EXPECT_EQ(shape.held_heads(), 10);
  EXPECT_EQ(shape.held_heads(0, 2), 5);
}

}  // namespace
}  // namespace winnow::engine
