// Training with ZeRO's stage 3 on devices gives the results of one device that has everything.
#include "base/cuda/device.h"
#include "train/cuda/device_ranks_testing.h"
#include "train/cuda/training_cases.h"

namespace winnow::train {
namespace {

using namespace testing::devices;
using testing::World;

// The parameter: ranks. One rank gathers its own parts.
class CudaShardedTraining : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() < GetParam()) {
      GTEST_SKIP() << GetParam() << " CUDA devices are needed";
    }
  }
};

TrainingOptions in_stage_3(TrainingOptions options) {
  options.zero_stage = ZeroStage::everything;
  return options;
}

// All but Muon's, which only CPU ranks share out.
std::vector<TrainingOptions> every_shared_training() {
  std::vector<TrainingOptions> all;
  std::ranges::copy_if(every_training(), std::back_inserter(all),
                       [](const TrainingOptions& options) { return !options.muon; });
  return all;
}

// Three parts: with two ranks one skips a part.
void expect_update_like_one(const World& world, const TrainingOptions& options, int ranks) {
  steps_on(1, options, world, 2, "", "begin");
  const auto expected = steps_on(1, options, world, 1, "begin", "one");
  const auto reports = steps_on(ranks, in_stage_3(options), world, 1, "begin", "all");
  expect_near(reports[0], expected[0]);
  expect_changes_near(world, "begin", "all", "one", 0.2);
}

// Three layers take turns in two buffers.
TEST_P(CudaShardedTraining, UpdatesLikeOne) {
  auto sizes = testing::kTinySizes;
  sizes.layers = 3;
  const World world(testing::tiny_config("llama", sizes));
  for (TrainingOptions options : every_shared_training()) {
    for (const Activations activations : {Activations::keep, Activations::recompute}) {
      options.activations = activations;
      expect_update_like_one(world, options, GetParam());
    }
  }
}

// Experts and recurrent layers; heads that are not the embedding.
TEST_P(CudaShardedTraining, TrainsEveryKindOfLayer) {
  const nlohmann::json experts = {{"num_experts", 8},
                                  {"num_experts_per_tok", 2},
                                  {"moe_intermediate_size", 160},
                                  {"mlp_only_layers", {1}},
                                  {"tie_word_embeddings", false}};
  auto sizes = testing::kWideSizes;
  sizes.layers = 5;
  for (const model::ModelSpec& spec :
       {testing::tiny_config("qwen3_moe", sizes, experts), testing::hybrid_config("qwen3_next"),
        testing::tiny_config("qwen2", sizes)}) {
    SCOPED_TRACE(spec.family);
    const World world(spec);
    for (const TrainingOptions& options :
         {testing::language_options(),
          testing::retrofit_options(model::DmsConfig::Source::borrowed),
          testing::retrofit_options(model::DmsConfig::Source::adapter)}) {
      expect_update_like_one(world, options, GetParam());
    }
  }
}

TEST_P(CudaShardedTraining, StartsAsItsTeacher) {
  const World world;
  for (const TrainingOptions& options : testing::every_retrofit()) {
    parallel::on_ranks(GetParam(), "--data-parallel", [&](parallel::Communicator& ranks) {
      Trainer trainer(in_stage_3(on_devices(options, GetParam())), world.base(), world.shards(),
                      ranks);
      if (ranks.rank() != 0) {
        return trainer.follow();
      }
      EXPECT_LT(trainer.check_student_is_teacher(), 1e-6);
    });
  }
}

TEST_P(CudaShardedTraining, LearnsLikeOne) {
  const World world;
  const TrainingOptions options = testing::language_options();
  const auto expected = steps_on(1, options, world, 30, "", "one");
  const auto reports = steps_on(GetParam(), in_stage_3(options), world, 30, "", "all");
  expect_learns_like(reports, expected);
}

// In the middle all state is saved, and continued in either stage.
TEST_P(CudaShardedTraining, GoesOnInAnyStage) {
  const World world;
  for (const TrainingOptions& options : every_shared_training()) {
    const auto whole = steps_on(GetParam(), in_stage_3(options), world, 6, "", "end");
    steps_on(GetParam(), in_stage_3(options), world, 3, "", "middle");
    for (const TrainingOptions& next : {options, in_stage_3(options)}) {
      const auto rest = steps_on(1, next, world, 3, "middle", "end");
      expect_goes_on_like(rest, whole, 3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaShardedTraining, ::testing::Values(1, 2));

}  // namespace
}  // namespace winnow::train
