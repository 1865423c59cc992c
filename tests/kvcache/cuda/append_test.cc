// Appending on the device, compared with the host's cache.
#include "kvcache/cuda/append/append.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "kvcache/cuda/cache_pair.h"

namespace winnow::kvcache::cuda {
namespace {

using testing::CachePair;
using testing::Case;

class CudaAppend : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

INSTANTIATE_TEST_SUITE_P(
    Cases, CudaAppend,
    ::testing::Values(Case{RuleKind::dms, ops::EntryFormat::f8e4m3, 64, 4, 37, 1},
                      Case{RuleKind::dms, ops::EntryFormat::f8e4m3, 128, 4, 256, 1},
                      Case{RuleKind::dms, ops::EntryFormat::i8, 80, 3, 16, 0},
                      Case{RuleKind::dms, ops::EntryFormat::bf16, 96, 8, 0, 1},
                      Case{RuleKind::dms, ops::EntryFormat::bf16, 64, 1, 1, 0},
                      Case{RuleKind::dms, ops::EntryFormat::f8e4m3, 64, 4, 37, 5},
                      Case{RuleKind::dms, ops::EntryFormat::bf16, 128, 2, 40, 41},
                      Case{RuleKind::dms, ops::EntryFormat::i8, 64, 2, 1, 2},
                      Case{RuleKind::dms_budget, ops::EntryFormat::bf16, 64, 4, 37, 1, 4.0},
                      Case{RuleKind::dms_budget, ops::EntryFormat::f8e4m3, 128, 2, 20, 0, 8.0},
                      Case{RuleKind::dms_budget, ops::EntryFormat::i8, 80, 3, 9, 10, 5.0, 33},
                      Case{RuleKind::dms_budget, ops::EntryFormat::q4, 64, 2, 15, 4, 8.0, 40, true},
                      Case{RuleKind::streaming, ops::EntryFormat::f8e4m3, 64, 4, 0, 1, 5.0},
                      Case{RuleKind::streaming, ops::EntryFormat::bf16, 80, 3, 0, 1, 100.0},
                      Case{RuleKind::streaming, ops::EntryFormat::i8, 128, 1, 0, 1, 700.0},
                      Case{RuleKind::dms, ops::EntryFormat::q4, 64, 4, 37, 1},
                      Case{RuleKind::dms, ops::EntryFormat::q4, 80, 3, 16, 2},
                      Case{RuleKind::streaming, ops::EntryFormat::q4, 96, 2, 0, 1, 5.0},
                      Case{RuleKind::dmc, ops::EntryFormat::q4, 128, 4},
                      Case{RuleKind::dmc, ops::EntryFormat::q4, 80, 3},
                      Case{RuleKind::dense, ops::EntryFormat::q4, 128, 8},
                      Case{RuleKind::dmc, ops::EntryFormat::f8e4m3, 64, 4},
                      Case{RuleKind::dmc, ops::EntryFormat::i8, 80, 3},
                      Case{RuleKind::dmc, ops::EntryFormat::bf16, 128, 2},
                      Case{RuleKind::dense, ops::EntryFormat::f8e4m3, 64, 4},
                      Case{RuleKind::dense, ops::EntryFormat::bf16, 128, 2},
                      Case{RuleKind::dense, ops::EntryFormat::bf16, 64, 4, 0, 1, 1.0, 1},
                      Case{RuleKind::dense, ops::EntryFormat::q4, 64, 2, 0, 1, 1.0, 90},
                      Case{RuleKind::dms, ops::EntryFormat::f8e4m3, 64, 4, 37, 5, 1.0, 16},
                      Case{RuleKind::dms, ops::EntryFormat::bf16, 128, 2, 9, 1, 1.0, 250},
                      Case{RuleKind::streaming, ops::EntryFormat::i8, 80, 3, 0, 1, 5.0, 33},
                      Case{RuleKind::dmc, ops::EntryFormat::f8e4m3, 64, 4, 0, 1, 1.0, 40},
                      Case{RuleKind::dmc, ops::EntryFormat::bf16, 128, 2, 0, 1, 1.0, 16, true},
                      Case{RuleKind::dmc, ops::EntryFormat::q4, 80, 3, 0, 1, 1.0, 100},
                      Case{RuleKind::quest, ops::EntryFormat::bf16, 64, 2, 0, 1, 4.0, 40},
                      Case{RuleKind::dense, ops::EntryFormat::q4, 64, 2, 0, 1, 1.0, 90, true},
                      Case{RuleKind::dms, ops::EntryFormat::f8e4m3, 64, 4, 37, 5, 1.0, 16, true},
                      Case{RuleKind::dms, ops::EntryFormat::bf16, 128, 2, 9, 1, 1.0, 250, true}),
    testing::name_of);

// Shapes that the kernels built for a head dimension do not support.
INSTANTIATE_TEST_SUITE_P(
    OtherShapes, CudaAppend,
    ::testing::Values(Case{RuleKind::dms, ops::EntryFormat::bf16, 16, 16, 37, 1},
                      Case{RuleKind::dms, ops::EntryFormat::f8e4m3, 256, 2, 40, 41},
                      Case{RuleKind::dms, ops::EntryFormat::i8, 48, 3, 16, 0},
                      Case{RuleKind::dms, ops::EntryFormat::q4, 24, 3, 16, 2},
                      Case{RuleKind::dms, ops::EntryFormat::q4, 256, 2, 37, 1},
                      Case{RuleKind::dms, ops::EntryFormat::f8e4m3, 64, 16, 37, 1},
                      Case{RuleKind::streaming, ops::EntryFormat::i8, 112, 1, 0, 1, 5.0},
                      Case{RuleKind::streaming, ops::EntryFormat::q4, 192, 2, 0, 1, 100.0},
                      Case{RuleKind::dmc, ops::EntryFormat::q4, 256, 2},
                      Case{RuleKind::dmc, ops::EntryFormat::q4, 40, 3},
                      Case{RuleKind::dmc, ops::EntryFormat::f8e4m3, 32, 16},
                      Case{RuleKind::dmc, ops::EntryFormat::bf16, 192, 2},
                      Case{RuleKind::dense, ops::EntryFormat::q4, 8, 30},
                      Case{RuleKind::dense, ops::EntryFormat::q4, 112, 4},
                      Case{RuleKind::dense, ops::EntryFormat::q4, 160, 1},
                      Case{RuleKind::dense, ops::EntryFormat::i8, 248, 1},
                      Case{RuleKind::dense, ops::EntryFormat::bf16, 96, 12}),
    testing::name_of);

TEST_P(CudaAppend, HoldsWhatTheHostHolds) {
  CachePair caches(GetParam());
  std::vector<CachePair::Sequence> sequences;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    // Different limits: rules with a budget keep more of some sequences than of others.
    const int tokens = 350 * static_cast<int>(seed);
    sequences.push_back(caches.open(seed, {tokens / 2, tokens}));
  }
  // Chunks alternate with single tokens, lengths differ, and slots are in another order.
  caches.prefill(sequences[0], 33);
  caches.prefill(sequences[2], 300);
  caches.prefill(sequences[3], 1);
  std::vector<CachePair::Sequence*> some{&sequences[3], &sequences[0], &sequences[1]};
  for (int t = 0; t < 20; ++t) {
    caches.decode(some);
  }
  caches.prefill(sequences[2], 17);
  caches.prefill(sequences[0], 170);
  caches.prefill(sequences[1], 5);
  std::vector<CachePair::Sequence*> all{&sequences[2], &sequences[3], &sequences[0], &sequences[1]};
  for (int t = 0; t < 40; ++t) {
    caches.decode(all);
  }
  for (const CachePair::Sequence& sequence : sequences) {
    caches.expect_same(sequence);
  }
}

TEST_P(CudaAppend, AsksForEnoughPages) {
  CachePair caches(GetParam());
  DeviceCache& device = caches.device();
  const std::size_t page = device.bytes(1) - device.bytes(0);
  CachePair::Sequence sequence = caches.open(1);
  for (const int tokens : {1, 15, 1, 16, 33, 1, 100, 37, 1}) {
    const std::size_t before = device.used_page_bytes(caches.stream()) / page;
    const std::size_t need = device.page_need(sequence.slot, tokens);
    caches.prefill(sequence, tokens);
    EXPECT_LE(device.used_page_bytes(caches.stream()) / page, before + need) << tokens;
  }
  const auto counts = device.archive_counts(sequence.slot, caches.stream());
  EXPECT_EQ(device.used_page_bytes(caches.stream()) / page, device.pages_of(sequence.slot, counts));
}

// DMS knows beforehand which heads take a page for one more token, unless that token itself decides
// about the entry that leaves.
TEST_P(CudaAppend, AsksForWhatOneTokenTakes) {
  CachePair caches(GetParam());
  DeviceCache& device = caches.device();
  const bool known = GetParam().rule == RuleKind::dms && GetParam().shift != GetParam().window + 1;
  CachePair::Sequence sequence = caches.open(1);
  std::vector<CachePair::Sequence*> batch{&sequence};
  caches.prefill(sequence, 45);
  CachePair::Sequence copy = caches.fork(sequence, 2);
  std::size_t asked = 0;
  for (int t = 0; t < 120; ++t) {
    if (t == 40) {
      batch.push_back(&copy);
    }
    const std::size_t before = caches.pages_in_use();
    std::size_t need = 0;
    for (const CachePair::Sequence* one : batch) {
      need += device.page_need(one->slot, 1);
    }
    caches.decode(batch);
    const std::size_t taken = caches.pages_in_use() - before;
    EXPECT_LE(taken, need) << t;
    if (known) {
      EXPECT_EQ(taken, need) << t;
    }
    asked += need;
  }
  // Asking for a page for each row at each token would be far more.
  EXPECT_LT(asked, 200U * testing::kLayers * testing::kKvHeads / 4);
}

TEST(CudaCache, RefusesWhatHasNoKernels) {
  if (winnow::cuda::device_count() == 0) {
    GTEST_SKIP() << "no CUDA device";
  }
  CacheConfig config;
  config.rule = RuleKind::dms;
  config.window = 16;
  config.shift = 18;  // the entry leaves the window before its decision
  EXPECT_THROW(DeviceCache(config, {1, 1, 64, 1}), Error);
  config.shift = 17;
  config.format = ops::EntryFormat::f32;
  EXPECT_THROW(DeviceCache(config, {1, 1, 64, 1}), Error);
}

}  // namespace
}  // namespace winnow::kvcache::cuda
