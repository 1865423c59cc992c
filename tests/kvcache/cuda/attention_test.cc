// Every rule's attention on the device, compared with the host's append_and_attend(): what queries
// see, and what stays in the cache.
#include <gtest/gtest.h>

#include <algorithm>

#include "kvcache/cuda/attention_pair.h"

namespace winnow::kvcache::cuda {
namespace {

using testing::AttentionPair;
using testing::CachePair;
using testing::Case;
using testing::kMostBatch;

class CudaTokenAttention : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

INSTANTIATE_TEST_SUITE_P(
    Cases, CudaTokenAttention,
    ::testing::Values(
        Case{RuleKind::dense, ops::EntryFormat::bf16, 64, 4},
        Case{RuleKind::dms, ops::EntryFormat::f8e4m3, 64, 4, 37, 3},
        Case{RuleKind::streaming, ops::EntryFormat::i8, 80, 3, 0, 1, 5.0},
        Case{RuleKind::dmc, ops::EntryFormat::f8e4m3, 128, 2},
        Case{RuleKind::dmc, ops::EntryFormat::bf16, 64, 8},
        Case{RuleKind::dmc, ops::EntryFormat::i8, 96, 1},
        Case{RuleKind::tova, ops::EntryFormat::bf16, 64, 4, 0, 1, 8.0},
        Case{RuleKind::tova, ops::EntryFormat::f8e4m3, 128, 8, 0, 1, 5.0},
        Case{RuleKind::tova, ops::EntryFormat::i8, 80, 1, 0, 1, 700.0},
        Case{RuleKind::h2o, ops::EntryFormat::f8e4m3, 64, 4, 0, 1, 8.0},
        Case{RuleKind::h2o, ops::EntryFormat::bf16, 96, 3, 0, 1, 20.0},
        Case{RuleKind::h2o, ops::EntryFormat::i8, 128, 2, 0, 1, 4.0},
        Case{RuleKind::random, ops::EntryFormat::bf16, 64, 4, 0, 1, 8.0},
        Case{RuleKind::random, ops::EntryFormat::q4, 128, 2, 0, 1, 20.0, 33},
        Case{RuleKind::vatp, ops::EntryFormat::bf16, 64, 4, 0, 1, 4.0},
        Case{RuleKind::vatp, ops::EntryFormat::f8e4m3, 128, 8, 0, 1, 5.0, 21},
        Case{RuleKind::vatp, ops::EntryFormat::i8, 80, 3, 0, 1, 20.0},
        Case{RuleKind::vatp, ops::EntryFormat::q4, 96, 2, 0, 1, 8.0},
        Case{RuleKind::snapkv, ops::EntryFormat::bf16, 64, 4, 0, 1, 1.5},
        Case{RuleKind::snapkv, ops::EntryFormat::f8e4m3, 128, 8, 0, 1, 3.0, 33},
        Case{RuleKind::snapkv, ops::EntryFormat::i8, 80, 3, 0, 1, 6.0},
        Case{RuleKind::snapkv, ops::EntryFormat::q4, 96, 2, 0, 1, 2.0, 21, true},
        Case{RuleKind::pyramidkv, ops::EntryFormat::bf16, 64, 2, 0, 1, 4.0},
        Case{RuleKind::pyramidkv, ops::EntryFormat::i8, 128, 4, 0, 1, 3.0},
        Case{RuleKind::expected_attention, ops::EntryFormat::bf16, 64, 4, 0, 1, 3.0},
        Case{RuleKind::expected_attention, ops::EntryFormat::i8, 128, 2, 0, 1, 2.0},
        Case{RuleKind::expected_attention, ops::EntryFormat::q4, 64, 2, 0, 1, 6.0, 33},
        Case{RuleKind::rkv, ops::EntryFormat::bf16, 64, 4, 0, 1, 5.0},
        Case{RuleKind::rkv, ops::EntryFormat::f8e4m3, 128, 8, 0, 1, 3.0, 33},
        Case{RuleKind::rkv, ops::EntryFormat::q4, 80, 2, 0, 1, 8.0},
        Case{RuleKind::triattention, ops::EntryFormat::bf16, 64, 4, 0, 1, 5.0},
        Case{RuleKind::triattention, ops::EntryFormat::f8e4m3, 128, 2, 0, 1, 3.0, 33},
        Case{RuleKind::triattention, ops::EntryFormat::q4, 64, 3, 0, 1, 8.0},
        Case{RuleKind::dms_quest, ops::EntryFormat::bf16, 64, 4, 9, 1, 8.0},
        Case{RuleKind::dms_quest, ops::EntryFormat::f8e4m3, 128, 2, 20, 0, 12.0},
        Case{RuleKind::dms_quest, ops::EntryFormat::q4, 64, 3, 5, 3, 20.0, 21},
        Case{RuleKind::dms_budget, ops::EntryFormat::bf16, 64, 4, 9, 1, 6.0},
        Case{RuleKind::dms_budget, ops::EntryFormat::f8e4m3, 128, 8, 12, 0, 8.0},
        Case{RuleKind::dms_budget, ops::EntryFormat::i8, 80, 3, 7, 8, 6.0, 33},
        Case{RuleKind::dms_budget, ops::EntryFormat::q4, 64, 2, 5, 3, 8.0, 21, true},
        Case{RuleKind::quest, ops::EntryFormat::bf16, 64, 4, 0, 1, 4.0},
        Case{RuleKind::quest, ops::EntryFormat::f8e4m3, 128, 2, 0, 1, 12.0},
        Case{RuleKind::quest, ops::EntryFormat::i8, 80, 3, 0, 1, 100.0},
        Case{RuleKind::dense, ops::EntryFormat::bf16, 64, 4, 0, 1, 1.0, 60},
        Case{RuleKind::dense, ops::EntryFormat::f8e4m3, 128, 2, 0, 1, 1.0, 1},
        Case{RuleKind::dms, ops::EntryFormat::f8e4m3, 64, 4, 37, 3, 1.0, 20},
        Case{RuleKind::dms, ops::EntryFormat::bf16, 128, 8, 9, 1, 1.0, 75},
        Case{RuleKind::streaming, ops::EntryFormat::i8, 80, 3, 0, 1, 5.0, 33},
        Case{RuleKind::dense, ops::EntryFormat::bf16, 64, 4, 0, 1, 1.0, 60, true},
        Case{RuleKind::dms, ops::EntryFormat::f8e4m3, 128, 8, 37, 3, 1.0, 21, true},
        Case{RuleKind::streaming, ops::EntryFormat::i8, 80, 3, 0, 1, 5.0, 1, true},
        Case{RuleKind::dense, ops::EntryFormat::q4, 64, 4},
        Case{RuleKind::dms, ops::EntryFormat::q4, 128, 4, 37, 3},
        Case{RuleKind::streaming, ops::EntryFormat::q4, 80, 3, 0, 1, 5.0},
        Case{RuleKind::dmc, ops::EntryFormat::q4, 96, 2},
        Case{RuleKind::tova, ops::EntryFormat::q4, 64, 4, 0, 1, 8.0},
        Case{RuleKind::h2o, ops::EntryFormat::q4, 128, 3, 0, 1, 4.0},
        Case{RuleKind::quest, ops::EntryFormat::q4, 64, 4, 0, 1, 12.0},
        Case{RuleKind::dmc, ops::EntryFormat::f8e4m3, 64, 4, 0, 1, 1.0, 40},
        Case{RuleKind::dmc, ops::EntryFormat::i8, 80, 3, 0, 1, 1.0, 21, true},
        Case{RuleKind::tova, ops::EntryFormat::bf16, 64, 4, 0, 1, 8.0, 60},
        Case{RuleKind::tova, ops::EntryFormat::f8e4m3, 128, 8, 0, 1, 5.0, 21, true},
        Case{RuleKind::h2o, ops::EntryFormat::q4, 64, 3, 0, 1, 8.0, 33},
        Case{RuleKind::h2o, ops::EntryFormat::i8, 80, 2, 0, 1, 4.0, 48, true},
        Case{RuleKind::quest, ops::EntryFormat::bf16, 64, 4, 0, 1, 4.0, 33},
        Case{RuleKind::quest, ops::EntryFormat::f8e4m3, 128, 2, 0, 1, 12.0, 60, true}),
    testing::name_of);

// Shapes that the kernels built for a head dimension do not support.
INSTANTIATE_TEST_SUITE_P(
    OtherShapes, CudaTokenAttention,
    ::testing::Values(Case{RuleKind::dmc, ops::EntryFormat::bf16, 64, 71},
                      Case{RuleKind::dmc, ops::EntryFormat::q4, 48, 3, 0, 1, 1.0, 40},
                      Case{RuleKind::tova, ops::EntryFormat::bf16, 256, 8, 0, 1, 8.0},
                      Case{RuleKind::tova, ops::EntryFormat::f8e4m3, 16, 16, 0, 1, 5.0, 60},
                      Case{RuleKind::tova, ops::EntryFormat::q4, 40, 3, 0, 1, 8.0},
                      Case{RuleKind::h2o, ops::EntryFormat::i8, 48, 2, 0, 1, 8.0},
                      Case{RuleKind::h2o, ops::EntryFormat::bf16, 64, 71, 0, 1, 20.0},
                      Case{RuleKind::h2o, ops::EntryFormat::f8e4m3, 512, 2, 0, 1, 4.0, 33},
                      Case{RuleKind::random, ops::EntryFormat::i8, 48, 3, 0, 1, 8.0, 40},
                      Case{RuleKind::dms_budget, ops::EntryFormat::bf16, 256, 2, 9, 2, 6.0},
                      Case{RuleKind::snapkv, ops::EntryFormat::bf16, 256, 2, 0, 1, 2.0},
                      Case{RuleKind::pyramidkv, ops::EntryFormat::q4, 40, 3, 0, 1, 4.0},
                      Case{RuleKind::expected_attention, ops::EntryFormat::f8e4m3, 80, 3, 0, 1,
                           4.0},
                      Case{RuleKind::rkv, ops::EntryFormat::i8, 256, 2, 0, 1, 5.0},
                      Case{RuleKind::triattention, ops::EntryFormat::i8, 256, 2, 0, 1, 5.0},
                      Case{RuleKind::dms_quest, ops::EntryFormat::i8, 64, 71, 10, 1, 8.0},
                      Case{RuleKind::dms_quest, ops::EntryFormat::bf16, 256, 2, 20, 1, 8.0, 40},
                      Case{RuleKind::vatp, ops::EntryFormat::bf16, 256, 2, 0, 1, 8.0},
                      Case{RuleKind::vatp, ops::EntryFormat::q4, 40, 3, 0, 1, 5.0},
                      Case{RuleKind::quest, ops::EntryFormat::bf16, 256, 8, 0, 1, 4.0},
                      Case{RuleKind::quest, ops::EntryFormat::q4, 48, 3, 0, 1, 12.0, 21, true},
                      Case{RuleKind::quest, ops::EntryFormat::i8, 64, 71, 0, 1, 8.0},
                      Case{RuleKind::quest, ops::EntryFormat::f8e4m3, 512, 2, 0, 1, 4.0}),
    testing::name_of);

TEST_P(CudaTokenAttention, SeesWhatTheHostSees) {
  AttentionPair caches(GetParam());
  std::vector<CachePair::Sequence> sequences;
  for (std::uint64_t seed = 1; seed <= kMostBatch; ++seed) {
    const int tokens = 200 + 50 * static_cast<int>(seed);
    sequences.push_back(caches.open(seed, {20 * static_cast<int>(seed), tokens}));
  }
  std::vector<CachePair::Sequence*> batch{&sequences[2], &sequences[0], &sequences[1]};
  for (int t = 0; t < 130; ++t) {
    ASSERT_NO_FATAL_FAILURE(caches.step(batch)) << t;
    if (t % 60 == 20) {
      batch.pop_back();  // so lengths differ
    }
  }
  if (caches.device().drops() || caches.device().selects()) {
    caches.chunk(sequences[1], 37);
    caches.chunk(sequences[2], 1);
    caches.chunk(sequences[2], 64);
  }
  std::vector<CachePair::Sequence*> all{&sequences[0], &sequences[1], &sequences[2]};
  for (int t = 0; t < 10; ++t) {
    caches.step(all);
  }
  for (const CachePair::Sequence& sequence : sequences) {
    caches.expect_same(sequence);
  }
}

// Long prompts in chunks of any size, one of them forked on the way, then answers.
TEST_P(CudaTokenAttention, ShrinksPromptsAsTheHostDoes) {
  AttentionPair caches(GetParam());
  if (!caches.device().drops_in_rounds()) {
    GTEST_SKIP() << "entries are dropped at each token, or not at all";
  }
  const auto take = [&](CachePair::Sequence& sequence, int tokens, int most) {
    for (int chunk = 1; tokens > 0; tokens -= chunk) {
      chunk = std::min(tokens, most + chunk % 7);
      const std::size_t before = caches.pages_in_use();
      const std::size_t need = caches.device().page_need(sequence.slot, chunk);
      caches.chunk(sequence, chunk);
      EXPECT_LE(caches.pages_in_use(), before + need);
    }
  };
  std::vector<CachePair::Sequence> sequences;
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    const int prompt = 150 + 80 * static_cast<int>(seed);
    sequences.push_back(caches.open(seed, {prompt, prompt + 170}));
    take(sequences.back(), prompt / 2, 90 / static_cast<int>(seed));
  }
  const std::size_t before = caches.pages_in_use();
  const std::size_t need = caches.device().fork_need(sequences[1].slot);
  sequences.push_back(caches.fork(sequences[1], 3));
  EXPECT_LE(caches.pages_in_use(), before + need);
  take(sequences[0], 230 / 2 + 10, 70);
  take(sequences[1], 310 / 2 + 3, 40);
  take(sequences[2], 310 / 2 + 5, 200);
  caches.expect_pages_accounted(sequences);
  std::vector<CachePair::Sequence*> all{&sequences[2], &sequences[0], &sequences[1]};
  for (int t = 0; t < 130; ++t) {
    caches.step(all);
  }
  take(sequences[1], 20, 20);
  caches.expect_pages_accounted(sequences);
  for (const CachePair::Sequence& sequence : sequences) {
    caches.expect_same(sequence);
    caches.close(sequence);
  }
  EXPECT_EQ(caches.pages_in_use(), 0U);
}

// A fork continues independently, even if entries are dropped from the archive.
TEST_P(CudaTokenAttention, ForksGoOnByThemselves) {
  AttentionPair caches(GetParam());
  std::vector<CachePair::Sequence> sequences;
  sequences.reserve(2);
  sequences.push_back(caches.open(1, {30, 250}));
  std::vector<CachePair::Sequence*> one{sequences.data()};
  for (int t = 0; t < 75; ++t) {
    caches.step(one);
  }
  sequences.push_back(caches.fork(sequences[0], 2));
  std::vector<CachePair::Sequence*> both{&sequences[1], &sequences[0]};
  for (int t = 0; t < 40; ++t) {
    caches.step(both);
  }
  caches.expect_pages_accounted(sequences);
  for (const CachePair::Sequence& sequence : sequences) {
    caches.expect_same(sequence);
    caches.close(sequence);
  }
  EXPECT_EQ(caches.pages_in_use(), 0U);
}

}  // namespace
}  // namespace winnow::kvcache::cuda
