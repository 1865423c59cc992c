// Training over several devices gives the results of one device.
#include "base/cuda/device.h"
#include "ops/cuda/linear/linear.h"
#include "train/cuda/device_ranks_testing.h"

namespace winnow::train {
namespace {

using namespace testing::devices;
using testing::World;

constexpr int kDevices = 2;

class CudaTrainingRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() < kDevices) {
      GTEST_SKIP() << kDevices << " CUDA devices are needed";
    }
  }
};

// One update from the same state, on which all later ones depend. Devices may choose different
// algorithms for products, which round differently; but a part that is not added, or not updated,
// makes a large difference.
TEST_F(CudaTrainingRanks, UpdateLikeOne) {
  const World world;
  for (const TrainingOptions& options : every_training()) {
    steps_on(1, options, world, 2, "", "begin");
    const auto expected = steps_on(1, options, world, 1, "begin", "one");
    const auto reports = steps_on(kDevices, options, world, 1, "begin", "all");
    expect_near(reports[0], expected[0]);
    expect_changes_near(world, "begin", "all", "one", 0.2);
  }
}

// Each device computes with all weights, though it updates half of them: a rank that did not
// receive the others' would learn less.
TEST_F(CudaTrainingRanks, LearnLikeOne) {
  const World world;
  for (const TrainingOptions& options :
       {testing::language_options(), testing::pretraining_options()}) {
    const auto expected = steps_on(1, options, world, 30, "", "one");
    const auto reports = steps_on(kDevices, options, world, 30, "", "all");
    expect_learns_like(reports, expected);
  }
}

class CudaTrainingRanksInFp8 : public CudaTrainingRanks {
 protected:
  void SetUp() override {
    CudaTrainingRanks::SetUp();
    if (!IsSkipped() && !ops::cuda::has_fp8_products()) {
      GTEST_SKIP() << "the devices do not multiply in fp8";
    }
    options_.fp8_products = true;
  }

  // Not a retrofit, whose gradient is a small difference.
  TrainingOptions options_ = testing::language_options();
  const World world_{testing::tiny_config("llama", testing::kFp8Sizes)};
};

TEST_F(CudaTrainingRanksInFp8, UpdateLikeOne) {
  steps_on(1, options_, world_, 2, "", "begin");
  const auto expected = steps_on(1, options_, world_, 1, "begin", "one");
  const auto reports = steps_on(kDevices, options_, world_, 1, "begin", "all");
  expect_near(reports[0], expected[0]);
  expect_changes_near(world_, "begin", "all", "one", 0.2);
}

// A device copies the matrices in fp8 after it has received what the others updated: with older
// ones it would learn less. The last bit of a sum may decide between two codes.
TEST_F(CudaTrainingRanksInFp8, LearnLikeOne) {
  const auto expected = steps_on(1, options_, world_, 30, "", "one");
  const auto reports = steps_on(kDevices, options_, world_, 30, "", "all");
  expect_learns_like(reports, expected, 0.1);
}

// In the middle all state is saved, and continued by as many devices or by one.
TEST_F(CudaTrainingRanks, GoOnWithAnyNumber) {
  const World world;
  for (const TrainingOptions& options : every_training()) {
    const auto whole = steps_on(kDevices, options, world, 6, "", "end");
    steps_on(kDevices, options, world, 3, "", "middle");
    for (const int count : {1, kDevices}) {
      const auto rest = steps_on(count, options, world, 3, "middle", "end");
      expect_goes_on_like(rest, whole, 3);
    }
  }
}

}  // namespace
}  // namespace winnow::train
