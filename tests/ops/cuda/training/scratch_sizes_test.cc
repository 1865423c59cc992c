// What the plan of a run's memory computes is what the kernels take.
#include "ops/cuda/training/scratch_sizes.h"

#include <gtest/gtest.h>

#include "ops/cuda/segment_average.h"
#include "ops/cuda/training/training_delta.h"

namespace winnow::ops::cuda {
namespace {

TEST(ScratchSizes, AreThoseOfTheKernels) {
  for (const int rows : {1, 63, 64, 65, 1000}) {
    const DeltaRuleShape heads{.key_heads = 2, .value_heads = 6, .key_dim = 24, .value_dim = 40};
    EXPECT_EQ(delta_scratch(heads, rows), DeltaScratch::size(heads, rows));
    EXPECT_EQ(merging_scratch(rows, 3), segment_average_scratch(rows, 3));
  }
}

}  // namespace
}  // namespace winnow::ops::cuda
