// A sequence that is saved and restored, at any points and repeatedly, equals one that is not:
// every entry and every output, to the last bit.
#include "kvcache/saved_sequence.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/threads.h"
#include "kvcache/any_calibration.h"
#include "kvcache/cache_world.h"
#include "kvcache/every_rule.h"
#include "kvcache/property.h"

namespace winnow::testing {
namespace {

using kvcache::Cache;
using kvcache::RuleKind;
using kvcache::SavedSequence;
using kvcache::SequenceCache;
using kvcache::SequenceLimits;
using ::testing::HasSubstr;

bool is_same(const SavedSequence& a, const SavedSequence& b) {
  const auto bits = [](const std::vector<float>& x) { return std::as_bytes(std::span(x)); };
  return a.length == b.length && a.archived == b.archived && a.entries == b.entries &&
         a.marks == b.marks && std::ranges::equal(bits(a.open), bits(b.open)) &&
         a.positions == b.positions && std::ranges::equal(bits(a.attention), bits(b.attention)) &&
         std::ranges::equal(bits(a.query_statistics), bits(b.query_statistics)) &&
         std::ranges::equal(bits(a.state), bits(b.state));
}

ops::PageLayout layout_of(const WorldConfig& world) {
  return world.shape.page_layout(world.cache.format);
}

/// Appends `rows` tokens to all layers, including recurrent ones; returns the outputs.
std::vector<float> append_rows(const WorldConfig& world, SequenceCache& sequence, int rows) {
  ops::Workspace workspace;
  ops::Context context{DType::f32, world.deterministic, &workspace};
  const TokenSource source(world.shape, world.rate);
  const int first = sequence.length();
  std::vector<float> answers;
  for (int layer = 0; layer < world.shape.states.layers; ++layer) {
    for (float& x : sequence.state().layer(layer)) {
      x = 0.9F * x + static_cast<float>(first + rows);
      answers.push_back(x);
    }
  }
  for (int layer = 0; layer < world.shape.layers; ++layer) {
    std::vector<LayerToken> tokens;
    for (int t = 0; t < rows; ++t) {
      tokens.push_back(source.token(1, layer, first + t));
    }
    ChunkBuffers buffers(world.shape, tokens);
    const kvcache::LayerChunk chunk = buffers.chunk(sequence);
    kvcache::append_and_attend(context, layer, std::span(&chunk, 1));
    for (int t = 0; t < rows; ++t) {
      const auto out = buffers.out(static_cast<std::size_t>(t));
      answers.insert(answers.end(), out.begin(), out.end());
    }
  }
  return answers;
}

WorldConfig saved_world(RuleKind rule) {
  WorldConfig world;
  world.cache.rule = rule;
  world.cache.format = *rc::gen::elementOf(
      std::vector(std::begin(ops::kEntryFormats), std::end(ops::kEntryFormats)));
  world.cache.window = *rc::gen::inRange(0, 41);
  world.cache.shift =
      *rc::gen::oneOf(rc::gen::inRange(0, 2), rc::gen::inRange(0, world.cache.window + 2));
  world.cache.cr = *rc::gen::element(1.0, 2.0, 4.0, 12.0);
  world.cache.sinks = *rc::gen::inRange(0, 6);
  world.cache.max_bytes = std::size_t{1} << 26;
  world.shape = {.layers = *rc::gen::inRange(1, 3),
                 .kv_heads = *rc::gen::inRange(1, 4),
                 .head_dim = 8 * *rc::gen::inRange(1, 9),
                 .group = *rc::gen::inRange(1, 4)};
  world.shape.reach = any_reach(world.shape.layers);
  world.shape.ropes = any_ropes(world.shape.layers, world.shape.head_dim);
  world.shape.chunked = *rc::gen::arbitrary<bool>();
  world.shape.joint = *rc::gen::arbitrary<bool>();
  world.shape.key_only = world.shape.joint ? *rc::gen::inRange(0, world.shape.head_dim) : 0;
  world.shape.states = {.layers = *rc::gen::inRange(0, 3), .floats = *rc::gen::inRange(1, 9)};
  world.shape = calibrated(world.shape);
  world.rate = *rc::gen::element(0.0, 0.3, 0.5, 0.9, 1.0);
  world.deterministic = *rc::gen::arbitrary<bool>();
  RC_LOG() << kvcache::rule_name(rule) << ' ' << ops::format_name(world.cache.format) << " window "
           << world.cache.window << " shift " << world.cache.shift << " cr " << world.cache.cr
           << " sinks " << world.cache.sinks << " layers " << world.shape.layers << " heads "
           << world.shape.kv_heads << " dim " << world.shape.head_dim << " reach ["
           << fmt::format("{}", fmt::join(world.shape.reach, " "))
           << (world.shape.chunked ? "] chunked" : "]")
           << (world.shape.joint ? " joint rate " : " rate ") << world.rate << '\n';
  return world;
}

class SavedRule : public ::testing::TestWithParam<RuleKind> {
 protected:
  void SetUp() override { set_threads(1); }
};
INSTANTIATE_TEST_SUITE_P(Rules, SavedRule, ::testing::ValuesIn(every_rule()), name_of_rule);

TEST_P(SavedRule, GoesOnAsIfNothingHadHappened) {
  EXPECT_TRUE(holds("saved and restored at any points", 60, [] {
    const WorldConfig world = saved_world(GetParam());
    const int prompt = *rc::gen::resize(100, rc::gen::inRange(1, 120));
    const SequenceLimits limits{prompt, prompt + 60};
    Cache cache(world.cache, world.shape);
    SequenceCache whole(cache, limits);
    // Two caches in turn, so that nothing of the old one can be reused.
    std::vector<std::unique_ptr<Cache>> others;
    others.push_back(std::make_unique<Cache>(world.cache, world.shape));
    others.push_back(std::make_unique<Cache>(world.cache, world.shape));
    std::optional<SequenceCache> moved(SequenceCache(*others[0], limits));
    const int steps = *rc::gen::resize(100, rc::gen::inRange(1, 10));
    for (int step = 0; step < steps; ++step) {
      const int rows = *rc::gen::element(1, 1, 2, 7, 30);
      RC_ASSERT(append_rows(world, whole, rows) == append_rows(world, *moved, rows));
      const SavedSequence saved = kvcache::save(*moved);
      RC_ASSERT(is_same(saved, kvcache::save(whole)));
      kvcache::validate(saved, world.shape, layout_of(world), whole.rule());
      Cache& other = *others[static_cast<std::size_t>((step + 1) % 2)];
      auto restored = kvcache::restore(other, limits, saved);
      RC_ASSERT(restored.has_value());
      moved.emplace(std::move(*restored));
      RC_ASSERT(is_same(kvcache::save(*moved), saved));
      RC_ASSERT(moved->live_entries() == whole.live_entries());
      RC_ASSERT(moved->bytes() <= whole.bytes() + 4096);
      // A fork of the restored sequence leaves it unchanged.
      SequenceCache fork = moved->fork();
      append_rows(world, fork, 3);
      RC_ASSERT(is_same(kvcache::save(*moved), saved));
    }
    moved.reset();
    RC_ASSERT(others[0]->page_bytes() == 0U);
    RC_ASSERT(others[1]->page_bytes() == 0U);
  }));
}

TEST_P(SavedRule, NeedsRoom) {
  EXPECT_TRUE(holds("null when there is no room, and nothing lost", 20, [] {
    WorldConfig world = saved_world(GetParam());
    world.shape.states = {};  // here only pages limit the room
    const SequenceLimits limits{60, 100};
    Cache cache(world.cache, world.shape);
    SequenceCache sequence(cache, limits);
    append_rows(world, sequence, 90);
    const SavedSequence saved = kvcache::save(sequence);
    const auto& layout = cache.archive_pool().layout();
    const std::size_t pages = cache.archive_pool().live_pages();
    const auto with_pages = [&](std::size_t count) {
      world.cache.max_bytes = count * layout.page_bytes();
      return Cache(world.cache, world.shape);
    };
    if (pages > 1 && GetParam() != RuleKind::dmc) {  // DMC's open entries have their own pool
      Cache small = with_pages(pages - 1);
      RC_ASSERT(!kvcache::restore(small, limits, saved).has_value());
      RC_ASSERT(small.page_bytes() == 0U);
      Cache enough = with_pages(pages);
      RC_ASSERT(kvcache::restore(enough, limits, saved).has_value());
    }
  }));
}

TEST(SavedSequence, WhatForgetsNothingCanBeCut) {
  for (const RuleKind rule : {RuleKind::dense, RuleKind::quest}) {
    WorldConfig world;
    world.cache = {
        .rule = rule, .format = ops::EntryFormat::f8e4m3, .max_bytes = 1 << 24, .cr = 2.0};
    world.shape = {.layers = 2, .kv_heads = 2, .head_dim = 16, .group = 1, .reach = {0, 67}};
    const SequenceLimits limits{80, 100};
    Cache cache(world.cache, world.shape);
    SequenceCache sequence(cache, limits);
    append_rows(world, sequence, 37);
    const SavedSequence early = kvcache::save(sequence);
    append_rows(world, sequence, 30);
    SavedSequence late = kvcache::save(sequence);
    EXPECT_TRUE(kvcache::can_be_cut(late, world.shape, sequence.rule()));
    kvcache::cut(late, layout_of(world), 37);
    EXPECT_TRUE(is_same(late, early));
    append_rows(world, sequence, 1);  // the sliding window drops an entry
    EXPECT_FALSE(kvcache::can_be_cut(kvcache::save(sequence), world.shape, sequence.rule()));
  }
  kvcache::CacheShape hybrid{.layers = 1, .kv_heads = 1, .head_dim = 16, .group = 1};
  hybrid.states = {.layers = 1, .floats = 4};
  const kvcache::Rule dense({.rule = RuleKind::dense}, {});
  SavedSequence nine;
  nine.length = 9;
  EXPECT_FALSE(kvcache::can_be_cut(nine, hybrid, dense)) << "a state forgets";
}

/// The error of validate() for a state of 60 tokens after `change`.
std::string complaint(RuleKind rule, const std::function<void(SavedSequence&)>& change) {
  WorldConfig world;
  world.cache = {
      .rule = rule, .format = ops::EntryFormat::bf16, .max_bytes = 1 << 24, .window = 9, .cr = 4.0};
  world.shape = {.layers = 2, .kv_heads = 2, .head_dim = 16, .group = 1};
  const SequenceLimits limits{60, 100};
  Cache cache(world.cache, world.shape);
  SequenceCache sequence(cache, limits);
  append_rows(world, sequence, 60);
  SavedSequence saved = kvcache::save(sequence);
  kvcache::validate(saved, world.shape, layout_of(world), sequence.rule());
  change(saved);
  try {
    kvcache::validate(saved, world.shape, layout_of(world), sequence.rule());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SavedSequence, WhatCannotBeIsRefused) {
  const auto dms = RuleKind::dms;
  EXPECT_THAT(complaint(dms, [](SavedSequence& s) { s.length = 0; }), HasSubstr("0 tokens"));
  EXPECT_THAT(complaint(dms, [](SavedSequence& s) { s.length = -5; }), HasSubstr("-5 tokens"));
  EXPECT_THAT(complaint(dms, [](SavedSequence& s) { s.archived[2] = 51; }),
              HasSubstr("51 entries, expected 0 to 50"));
  EXPECT_THAT(complaint(dms, [](SavedSequence& s) { s.archived[0] = -1; }), HasSubstr("-1"));
  EXPECT_THAT(complaint(dms, [](SavedSequence& s) { s.archived.pop_back(); }),
              HasSubstr("3 values of archive lengths, expected 4"));
  EXPECT_THAT(complaint(dms, [](SavedSequence& s) { s.entries.pop_back(); }),
              HasSubstr("entry bytes"));
  EXPECT_THAT(complaint(dms, [](SavedSequence& s) { s.marks.push_back(0); }),
              HasSubstr("41 values of marks, expected 40"));
  EXPECT_THAT(complaint(dms, [](SavedSequence& s) { s.open.push_back(0); }),
              HasSubstr("open entries, expected 0"));
  EXPECT_THAT(complaint(RuleKind::dmc, [](SavedSequence& s) { s.open.pop_back(); }),
              HasSubstr("131 values of open entries, expected 132"));
  EXPECT_THAT(complaint(RuleKind::dense, [](SavedSequence& s) { s.length = 59; }),
              HasSubstr("60 entries, expected 59 to 59"));
  EXPECT_THAT(complaint(RuleKind::tova, [](SavedSequence& s) { s.positions[3] = 60; }),
              HasSubstr("positions"));
  EXPECT_THAT(complaint(RuleKind::tova, [](SavedSequence& s) { s.positions[3] = -1; }),
              HasSubstr("positions"));
  EXPECT_THAT(complaint(RuleKind::h2o, [](SavedSequence& s) { s.positions[3] = s.positions[4]; }),
              HasSubstr("positions"));
  EXPECT_THAT(complaint(RuleKind::h2o, [](SavedSequence& s) { s.attention.clear(); }),
              HasSubstr("attention"));
  EXPECT_THAT(complaint(RuleKind::streaming, [](SavedSequence& s) { s.archived[0] = 3; }),
              HasSubstr("3 entries, expected 4 to 4"));
}

}  // namespace
}  // namespace winnow::testing
