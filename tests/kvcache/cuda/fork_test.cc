// Forks share pages. Appends, forks and closes in any order, compared with sequences on the host;
// counts every reference to every page after each step.
#include <gtest/gtest.h>

#include <numeric>

#include "kvcache/cuda/cache_pair.h"

namespace winnow::kvcache::cuda {
namespace {

using testing::CachePair;
using testing::Case;

class CudaFork : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

INSTANTIATE_TEST_SUITE_P(
    Cases, CudaFork,
    ::testing::Values(Case{RuleKind::dms, ops::EntryFormat::f8e4m3, 64, 2, 37, 1},
                      Case{RuleKind::dms, ops::EntryFormat::bf16, 64, 1, 0, 0},
                      Case{RuleKind::dms, ops::EntryFormat::i8, 80, 1, 15, 9},
                      Case{RuleKind::streaming, ops::EntryFormat::i8, 64, 2, 0, 1, 20.0},
                      Case{RuleKind::dms, ops::EntryFormat::q4, 64, 2, 37, 1},
                      Case{RuleKind::dmc, ops::EntryFormat::f8e4m3, 64, 2},
                      Case{RuleKind::dense, ops::EntryFormat::bf16, 64, 1},
                      Case{RuleKind::dense, ops::EntryFormat::bf16, 64, 1, 0, 1, 1.0, 50},
                      Case{RuleKind::dms, ops::EntryFormat::f8e4m3, 64, 2, 37, 1, 1.0, 20},
                      Case{RuleKind::streaming, ops::EntryFormat::i8, 64, 2, 0, 1, 20.0, 100},
                      Case{RuleKind::dmc, ops::EntryFormat::f8e4m3, 64, 2, 0, 1, 1.0, 40},
                      Case{RuleKind::dms, ops::EntryFormat::bf16, 64, 2, 37, 1, 1.0, 20, true}),
    testing::name_of);

TEST_P(CudaFork, AnyOrderOfForkAppendAndClose) {
  for (std::uint64_t world = 1; world <= 3; ++world) {
    CachePair caches(GetParam());
    std::vector<CachePair::Sequence> sequences;
    Random random(world);
    const auto choose = [&](std::size_t count) {
      return static_cast<std::size_t>(random.uniform() * static_cast<double>(count));
    };
    std::uint64_t seed = 0;
    for (int step = 0; step < 60; ++step) {
      const double what = sequences.size() < 2 ? 0.0 : random.uniform();
      if (what < 0.1 && sequences.size() < 8) {
        sequences.push_back(caches.open(++seed));
        caches.prefill(sequences.back(), 1 + static_cast<int>(choose(70)));
      } else if (what < 0.35 && sequences.size() < 8) {
        const CachePair::Sequence& parent = sequences[choose(sequences.size())];
        const std::size_t need = caches.device().fork_need(parent.slot);
        const std::size_t before = caches.pages_in_use();
        sequences.push_back(caches.fork(parent, ++seed));
        EXPECT_LE(caches.pages_in_use(), before + need);
      } else if (what < 0.5 && sequences.size() > 1) {
        const std::size_t victim = choose(sequences.size());
        caches.close(sequences[victim]);
        sequences.erase(sequences.begin() + static_cast<std::ptrdiff_t>(victim));
      } else if (what < 0.7) {
        caches.prefill(sequences[choose(sequences.size())], 1 + static_cast<int>(choose(40)));
      } else {
        std::vector<CachePair::Sequence*> batch;
        for (CachePair::Sequence& sequence : sequences) {
          batch.push_back(&sequence);
        }
        for (int t = 0; t < 5; ++t) {
          caches.decode(batch);
        }
      }
      ASSERT_NO_FATAL_FAILURE(caches.expect_pages_accounted(sequences)) << "step " << step;
    }
    for (const CachePair::Sequence& sequence : sequences) {
      ASSERT_NO_FATAL_FAILURE(caches.expect_same(sequence)) << "world " << world;
    }
    for (const CachePair::Sequence& sequence : sequences) {
      caches.close(sequence);
    }
    EXPECT_EQ(caches.pages_in_use(), 0U);
  }
}

// A fork costs the window and one page per head, for an archive of any length.
TEST_P(CudaFork, CopiesOnlyWhatMayChange) {
  CachePair caches(GetParam());
  CachePair::Sequence sequence = caches.open(1);
  caches.prefill(sequence, 600);
  const std::size_t before = caches.pages_in_use();
  const CachePair::Sequence copy = caches.fork(sequence, 2);
  std::size_t most = 0;
  for (int layer = 0; layer < testing::kLayers; ++layer) {
    const auto ring = static_cast<std::size_t>(caches.device().ring(layer, sequence.slot));
    most += testing::kKvHeads * (1 + (ring + 15) / 16);
  }
  EXPECT_LE(caches.pages_in_use() - before, most);
  caches.close(sequence);
  caches.expect_same(copy);
  caches.close(copy);
  EXPECT_EQ(caches.pages_in_use(), 0U);
}

}  // namespace
}  // namespace winnow::kvcache::cuda
