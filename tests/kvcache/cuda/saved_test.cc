// Moves sequences between the host's cache and the device's, with everything that they hold.
#include <gtest/gtest.h>

#include "kvcache/any_calibration.h"
#include "kvcache/cache_world.h"
#include "kvcache/cuda/cache_pair.h"
#include "kvcache/saved_sequence.h"

namespace winnow::kvcache::cuda {
namespace {

using testing::CachePair;
using testing::Case;

void expect_same(const SavedSequence& a, const SavedSequence& b) {
  EXPECT_EQ(a.length, b.length);
  EXPECT_EQ(a.archived, b.archived);
  EXPECT_EQ(a.entries, b.entries);
  EXPECT_EQ(a.marks, b.marks);
  EXPECT_EQ(a.logits, b.logits);
  EXPECT_EQ(a.open, b.open);
  EXPECT_EQ(a.positions, b.positions);
  EXPECT_EQ(a.attention, b.attention);
  EXPECT_EQ(a.query_statistics, b.query_statistics);
}

class CudaSaved : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

INSTANTIATE_TEST_SUITE_P(
    Cases, CudaSaved,
    ::testing::Values(Case{RuleKind::dms, ops::EntryFormat::f8e4m3, 64, 2, 37, 1},
                      Case{RuleKind::dms, ops::EntryFormat::bf16, 128, 1, 0, 0},
                      Case{RuleKind::dms, ops::EntryFormat::i8, 80, 1, 15, 9},
                      Case{RuleKind::dms, ops::EntryFormat::bf16, 96, 1, 40, 41},
                      Case{RuleKind::dms_budget, ops::EntryFormat::bf16, 64, 2, 20, 1, 8.0},
                      Case{RuleKind::dms_budget, ops::EntryFormat::q4, 64, 2, 9, 0, 8.0, 40},
                      Case{RuleKind::streaming, ops::EntryFormat::i8, 64, 2, 0, 1, 20.0},
                      Case{RuleKind::dmc, ops::EntryFormat::f8e4m3, 64, 2},
                      Case{RuleKind::dms, ops::EntryFormat::q4, 64, 2, 37, 1},
                      Case{RuleKind::dmc, ops::EntryFormat::q4, 80, 2},
                      Case{RuleKind::dense, ops::EntryFormat::bf16, 64, 1},
                      Case{RuleKind::dense, ops::EntryFormat::i8, 64, 1, 0, 1, 1.0, 40},
                      Case{RuleKind::dms, ops::EntryFormat::f8e4m3, 64, 2, 37, 1, 1.0, 20},
                      Case{RuleKind::dms, ops::EntryFormat::bf16, 80, 1, 15, 9, 1.0, 100},
                      Case{RuleKind::streaming, ops::EntryFormat::q4, 64, 2, 0, 1, 20.0, 50},
                      Case{RuleKind::dmc, ops::EntryFormat::f8e4m3, 64, 2, 0, 1, 1.0, 40},
                      Case{RuleKind::dmc, ops::EntryFormat::bf16, 64, 2, 0, 1, 1.0, 16, true},
                      Case{RuleKind::dense, ops::EntryFormat::bf16, 64, 2, 0, 1, 1.0, 40, true},
                      Case{RuleKind::dms, ops::EntryFormat::f8e4m3, 64, 2, 37, 1, 1.0, 16, true}),
    testing::name_of);

// At random points the device's sequence is saved, closed and restored, from what the device or the
// host saved. Both saved states are the same and continue in the same way.
TEST_P(CudaSaved, GoesOnAsIfNothingHadHappened) {
  constexpr SequenceLimits kLimits{300, 700};
  for (std::uint64_t world = 1; world <= 3; ++world) {
    CachePair caches(GetParam());
    CachePair::Sequence sequence = caches.open(world, kLimits);
    CachePair::Sequence company = caches.open(world + 100, kLimits);
    caches.prefill(company, 50);
    Random random(world);
    for (int step = 0; step < 12; ++step) {
      if (random.uniform() < 0.5) {
        caches.prefill(sequence, 1 + static_cast<int>(random.uniform() * 60.0));
      } else {
        CachePair::Sequence* both[] = {&sequence, &company};
        for (int t = 0; t < 5; ++t) {
          caches.decode(both);
        }
      }
      const SavedSequence on_host = save(sequence.host);
      const SavedSequence on_device = caches.device().save(sequence.slot, caches.stream());
      expect_same(on_device, on_host);
      const std::size_t pages = caches.pages_in_use();
      caches.close(sequence);
      const auto slot =
          caches.device().restore(kLimits, step % 2 == 0 ? on_host : on_device, caches.stream());
      ASSERT_TRUE(slot.has_value());
      sequence.slot = *slot;
      EXPECT_EQ(caches.pages_in_use(), pages);
      std::vector<CachePair::Sequence> all;
      all.push_back({sequence.host.fork(), sequence.slot, 0});
      all.push_back({company.host.fork(), company.slot, 0});
      ASSERT_NO_FATAL_FAILURE(caches.expect_pages_accounted(all));
      ASSERT_NO_FATAL_FAILURE(caches.expect_same(sequence)) << "world " << world;
    }
    ASSERT_NO_FATAL_FAILURE(caches.expect_same(company));
    caches.close(sequence);
    caches.close(company);
    EXPECT_EQ(caches.pages_in_use(), 0U);
  }
}

// Restores into another slot, whose last sequence needed other pages.
TEST_P(CudaSaved, WantsAsManyPagesForItsNextToken) {
  constexpr SequenceLimits kLimits{300, 700};
  CachePair caches(GetParam());
  DeviceCache& device = caches.device();
  CachePair::Sequence sequence = caches.open(1, kLimits);
  caches.prefill(sequence, 70);
  CachePair::Sequence* batch[] = {&sequence};
  for (int t = 0; t < 20; ++t) {
    caches.decode(batch);
    const SavedSequence saved = device.save(sequence.slot, caches.stream());
    const auto slot = device.restore(kLimits, saved, caches.stream());
    ASSERT_TRUE(slot.has_value());
    ASSERT_NE(*slot, sequence.slot);
    EXPECT_EQ(device.page_need(*slot, 1), device.page_need(sequence.slot, 1)) << t;
    device.close(*slot, caches.stream());
  }
}

// Moves a sequence that the host's cache computed to the device and back.
void expect_there_and_back(RuleKind rule, const CacheShape& shape, int length) {
  const winnow::cuda::Stream stream;
  CacheConfig config{.rule = rule, .format = ops::EntryFormat::f8e4m3, .max_bytes = 1 << 24};
  config.window = 20;
  config.cr = 4.0;
  const SequenceLimits limits{100, 200};
  Cache host(config, shape);
  SequenceCache sequence(host, limits);
  const winnow::testing::TokenSource source(shape, 0.5);
  ops::Workspace workspace;
  ops::Context context{DType::f32, true, &workspace};
  for (int layer = 0; layer < shape.layers; ++layer) {
    std::vector<winnow::testing::LayerToken> tokens;
    for (int t = 0; t < length; ++t) {
      tokens.push_back(source.token(1, layer, t));
    }
    winnow::testing::ChunkBuffers buffers(shape, tokens);
    const LayerChunk chunk = buffers.chunk(sequence);
    append_and_attend(context, layer, std::span(&chunk, 1));
  }
  const SavedSequence saved = save(sequence);
  DeviceCache device(config, shape);
  const auto slot = device.restore(limits, saved, stream.get());
  ASSERT_TRUE(slot.has_value());
  expect_same(device.save(*slot, stream.get()), saved);
  const int fork = device.fork(*slot, stream.get());
  expect_same(device.save(fork, stream.get()), saved);
  device.close(*slot, stream.get());
  expect_same(device.save(fork, stream.get()), saved);
  device.close(fork, stream.get());
  EXPECT_EQ(device.used_page_bytes(stream.get()), 0U);
}

TEST(CudaSaved, EveryRuleThereAndBack) {
  if (winnow::cuda::device_count() == 0) {
    GTEST_SKIP() << "no CUDA device";
  }
  const CacheShape full{.layers = 3, .kv_heads = 3, .head_dim = 64, .group = 2};
  CacheShape sliding = full;
  sliding.reach = {40, 0, 40};
  CacheShape chunked = full;
  chunked.reach = {0, 25, 0};
  chunked.chunked = true;
  CacheShape all_slide = full;
  all_slide.reach = {40, 40, 40};
  for (const RuleTraits& rule : kRules) {
    if (!rule.has_kernels()) {
      continue;
    }
    for (const CacheShape& plain : {full, sliding, chunked, all_slide}) {
      const CacheShape shape = rule.calibrated ? winnow::testing::calibrated(plain) : plain;
      for (const int length : {1, 16, 130}) {
        SCOPED_TRACE(std::string(rule.name) + " after " + std::to_string(length));
        expect_there_and_back(rule.kind, shape, length);
      }
    }
  }
}

TEST(CudaSaved, NeedsRoom) {
  if (winnow::cuda::device_count() == 0) {
    GTEST_SKIP() << "no CUDA device";
  }
  const winnow::cuda::Stream stream;
  CachePair caches(Case{RuleKind::dms, ops::EntryFormat::bf16, 64, 1, 9, 1});
  CachePair::Sequence sequence = caches.open(1);
  caches.prefill(sequence, 200);
  const SavedSequence saved = caches.device().save(sequence.slot, caches.stream());
  const std::size_t pages = caches.pages_in_use();
  for (const std::size_t room : {pages - 1, pages}) {
    CacheConfig config = caches.device().config();
    config.max_bytes = room * DeviceCache::page_cost(config, caches.device().shape());
    DeviceCache small(config, caches.device().shape());
    EXPECT_EQ(small.restore({300, 700}, saved, stream.get()).has_value(), room == pages);
    EXPECT_EQ(small.used_page_bytes(stream.get()) > 0, room == pages);
  }
}

}  // namespace
}  // namespace winnow::kvcache::cuda
