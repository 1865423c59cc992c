// Training over several devices gives the results of one device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/cuda/device.h"
#include "parallel/on_ranks.h"
#include "train/training_world.h"

namespace winnow::train {
namespace {

using testing::World;
using Source = model::DmsConfig::Source;

constexpr int kDevices = 2;

class CudaTrainingRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() < kDevices) {
      GTEST_SKIP() << kDevices << " CUDA devices are needed";
    }
  }
};

TrainingOptions on_devices(TrainingOptions options, int ranks) {
  options.compute = DType::bf16;
  options.cuda_device = 0;
  options.batch = 6;
  options.micro_batch = 2;
  options.ranks = ranks;
  if (options.retrofit) {
    options.retrofit->fade_steps = std::min<std::int64_t>(options.retrofit->fade_steps, 1);
    options.retrofit->dms.scale = 4.0F;  // at 100, decisions near the threshold may differ
  }
  return options;
}

std::vector<TrainingOptions> every_training() {
  auto all = testing::every_retrofit();
  all.push_back(testing::language_options());
  all.push_back(testing::pretraining_options());
  return all;
}

// Updates of rank 0's trainer, starting from `state` if it exists; returns the state after them.
std::vector<StepReport> steps_on(int count, const TrainingOptions& given, const World& world,
                                 int steps, const std::string& from, const std::string& to) {
  const TrainingOptions options = on_devices(given, count);
  std::vector<StepReport> reports;
  parallel::on_ranks(count, "--data-parallel", [&](parallel::Communicator& ranks) {
    Trainer trainer(options, world.base(), world.shards(), ranks);
    if (!from.empty()) {
      trainer.load_state(world.path(from), {});
    }
    if (ranks.rank() != 0) {
      return trainer.follow();
    }
    for (int i = 0; i < steps; ++i) {
      reports.push_back(trainer.step());
    }
    trainer.save_state(world.path(to), {});
  });
  return reports;
}

// The norm of the arrays' difference, relative to the second one.
double distance(std::span<const float> a, std::span<const float> b) {
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2.0);
    norm += std::pow(double{b[i]}, 2.0);
  }
  return std::sqrt(difference / norm);
}

std::vector<float> change(std::span<const float> after, std::span<const float> before) {
  std::vector<float> result(after.size());
  std::ranges::transform(after, before, result.begin(), std::minus<>());
  return result;
}

// One update from the same state, on which all later ones depend. Devices may choose different
// algorithms for products, which round differently; but a part that is not added, or not updated,
// makes a large difference.
TEST_F(CudaTrainingRanks, UpdateLikeOne) {
  const World world;
  for (const TrainingOptions& options : every_training()) {
    steps_on(1, options, world, 2, "", "begin");
    const auto expected = steps_on(1, options, world, 1, "begin", "one");
    const auto reports = steps_on(kDevices, options, world, 1, "begin", "all");
    EXPECT_NEAR(reports[0].loss, expected[0].loss, 1e-2 * expected[0].loss + 5e-5);
    EXPECT_NEAR(reports[0].norm, expected[0].norm, 2e-2 * expected[0].norm);
    EXPECT_NEAR(reports[0].decision_norm, expected[0].decision_norm,
                2e-2 * expected[0].decision_norm + 1e-9);
    if (expected[0].eviction) {
      EXPECT_NEAR(reports[0].eviction->share, expected[0].eviction->share, 5e-3);
    }
    const SafetensorsFile begin(world.path("begin"));
    const SafetensorsFile one(world.path("one"));
    const SafetensorsFile all(world.path("all"));
    for (const char* array : {"values", "first_moments", "second_moments"}) {
      const auto before = begin.tensor(array).as<float>();
      EXPECT_LE(distance(change(all.tensor(array).as<float>(), before),
                         change(one.tensor(array).as<float>(), before)),
                0.2)
          << array;
    }
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
    ASSERT_LT(expected.back().loss, 0.7 * expected.front().loss);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(reports[i].loss, expected[i].loss, 0.03 * expected[i].loss) << i;
    }
  }
}

// In the middle all state is saved, and continued by as many devices or by one.
TEST_F(CudaTrainingRanks, GoOnWithAnyNumber) {
  const World world;
  for (const TrainingOptions& options : every_training()) {
    const auto whole = steps_on(kDevices, options, world, 6, "", "end");
    steps_on(kDevices, options, world, 3, "", "middle");
    for (const int count : {1, kDevices}) {
      const auto rest = steps_on(count, options, world, 3, "middle", "end");
      for (std::size_t i = 0; i < rest.size(); ++i) {
        EXPECT_NEAR(rest[i].loss, whole[3 + i].loss, 0.02 * whole[3 + i].loss + 2e-4) << i;
      }
    }
  }
}

}  // namespace
}  // namespace winnow::train
