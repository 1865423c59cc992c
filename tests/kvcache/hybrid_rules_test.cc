// DMS with a budget that never runs out equals DMS, to the last bit.
#include <gtest/gtest.h>

#include "base/threads.h"
#include "kvcache/cache_world.h"
#include "kvcache/every_rule.h"
#include "kvcache/saved_sequence.h"

namespace winnow::testing {
namespace {

using kvcache::RuleKind;

constexpr int kHybridPrompt = 130;
constexpr int kHybridTotal = 200;

struct HybridRun {
  std::vector<float> answers;
  std::vector<std::int32_t> visible;
  kvcache::SavedSequence end;
};

// The prompt in chunks of `rows`, then token by token, as the engine takes them.
HybridRun run_hybrid(const WorldConfig& world, int rows) {
  ops::Workspace workspace;
  ops::Context context{DType::bf16, world.deterministic, &workspace};
  kvcache::Cache cache(world.cache, world.shape);
  kvcache::SequenceCache sequence(cache, {kHybridPrompt, kHybridTotal});
  const TokenSource source(world.shape, world.rate);
  HybridRun run;
  for (int first = 0; first < kHybridTotal;) {
    const int count = first < kHybridPrompt ? std::min(rows, kHybridPrompt - first) : 1;
    std::vector<LayerToken> tokens;
    for (int t = 0; t < count; ++t) {
      tokens.push_back(source.token(1, 0, first + t));
    }
    ChunkBuffers buffers(world.shape, tokens);
    const kvcache::LayerChunk chunk = buffers.chunk(sequence);
    kvcache::append_and_attend(context, 0, std::span(&chunk, 1));
    for (int t = 0; t < count; ++t) {
      const auto out = buffers.out(static_cast<std::size_t>(t));
      const auto visible = buffers.visible(static_cast<std::size_t>(t));
      run.answers.insert(run.answers.end(), out.begin(), out.end());
      run.visible.insert(run.visible.end(), visible.begin(), visible.end());
    }
    first += count;
  }
  run.end = kvcache::save(sequence);
  return run;
}

WorldConfig any_dms() {
  WorldConfig world;
  world.cache = {.rule = RuleKind::dms,
                 .format = *rc::gen::elementOf(
                     std::vector(std::begin(ops::kEntryFormats), std::end(ops::kEntryFormats))),
                 .max_bytes = std::size_t{1} << 26,
                 .window = *rc::gen::inRange(0, 41)};
  world.cache.shift = *rc::gen::inRange(0, world.cache.window + 2);
  world.shape = {.layers = 1,
                 .kv_heads = *rc::gen::inRange(1, 4),
                 .head_dim = 8 * *rc::gen::inRange(1, 17),
                 .group = *rc::gen::inRange(1, 9)};
  world.rate = *rc::gen::element(0.0, 0.3, 0.9);
  world.deterministic = *rc::gen::arbitrary<bool>();
  return world;
}

class Hybrid : public ::testing::TestWithParam<RuleKind> {};
INSTANTIATE_TEST_SUITE_P(Rules, Hybrid,
                         ::testing::Values(RuleKind::dms_quest, RuleKind::dms_budget),
                         name_of_rule);

TEST_P(Hybrid, IsDmsWhereTheBudgetSuffices) {
  set_threads(2);
  EXPECT_TRUE(holds("not a bit differs from DMS", 40, [] {
    WorldConfig world = any_dms();
    const int rows = *rc::gen::inRange(1, 100);
    const HybridRun dms = run_hybrid(world, rows);
    world.cache.rule = GetParam();
    const HybridRun hybrid = run_hybrid(world, rows);
    RC_ASSERT(std::ranges::equal(std::as_bytes(std::span(hybrid.answers)),
                                 std::as_bytes(std::span(dms.answers))));
    RC_ASSERT(hybrid.visible == dms.visible);
    RC_ASSERT(hybrid.end.archived == dms.end.archived);
    RC_ASSERT(hybrid.end.entries == dms.end.entries);
    RC_ASSERT(hybrid.end.marks == dms.end.marks);
  }));
}

}  // namespace
}  // namespace winnow::testing
