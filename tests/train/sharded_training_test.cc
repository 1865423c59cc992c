// Training with ZeRO's stage 3 (threads here) gives the results of one rank that has everything.
#include <gtest/gtest.h>

#include "base/error.h"
#include "train/ranks_testing.h"
#include "train/run.h"

namespace winnow::train {
namespace {

using testing::every_training;
using testing::expect_near;
using testing::expect_same;
using testing::in_parts;
using testing::on_trainers;
using testing::steps_of;
using testing::steps_on;
using testing::World;
using Source = model::DmsConfig::Source;

TrainingOptions in_stage(TrainingOptions options, ZeroStage stage) {
  options.zero_stage = stage;
  return options;
}

TrainingOptions sharded(TrainingOptions options) {
  return in_stage(std::move(options), ZeroStage::everything);
}

TEST(ShardedTraining, HasTheLossesOfOneRank) {
  const World world;
  for (const TrainingOptions& options : every_training()) {
    const auto expected = steps_on(1, options, world, 6);
    for (const int ranks : {1, 2, 3}) {
      SCOPED_TRACE(ranks);
      expect_near(steps_on(ranks, sharded(options), world, 6), expected);
    }
  }
}

// Layers of several kinds, and tensors outside layers.
TEST(ShardedTraining, TrainsEveryKindOfLayer) {
  const nlohmann::json experts = {{"num_experts", 3},
                                  {"num_experts_per_tok", 3},
                                  {"moe_intermediate_size", 12},
                                  {"mlp_only_layers", {1}}};
  nlohmann::json hybrid = winnow::testing::hybrid_keys();
  hybrid.update({{"num_experts", 0}});
  for (const auto& [family, keys] : {std::pair<std::string, nlohmann::json>{"qwen3_moe", experts},
                                     {"qwen3_next", hybrid},
                                     {"qwen2", nlohmann::json::object()}}) {
    SCOPED_TRACE(family);
    const World world(testing::tiny_config(family, testing::kTinySizes, keys));
    for (TrainingOptions options :
         {testing::language_options(), testing::retrofit_options(Source::borrowed)}) {
      options = in_parts(options);
      expect_near(steps_on(2, sharded(options), world, 3), steps_on(1, options, world, 3));
    }
  }
}

TEST(ShardedTraining, ClipsByTheNormOfAllRanks) {
  const World world;
  TrainingOptions options = in_parts(testing::language_options());
  options.clip = 0.05;
  options.activations = Activations::keep;
  const auto expected = steps_on(1, options, world, 4);
  EXPECT_GT(expected.front().norm, options.clip);
  expect_near(steps_on(3, sharded(options), world, 4), expected);
}

TEST(ShardedTraining, StartsAsItsTeacher) {
  const World world;
  for (const TrainingOptions& options : testing::every_retrofit()) {
    on_trainers(2, sharded(options), world,
                [](Trainer& trainer) { EXPECT_LT(trainer.check_student_is_teacher(), 1e-6); });
  }
}

// Continues from a state for some steps, and then overwrites it.
std::vector<StepReport> go_on(const TrainingOptions& options, int count, const World& world) {
  const auto state = world.path("state");
  std::vector<StepReport> reports;
  parallel::on_ranks(count, "--data-parallel", [&](parallel::Communicator& ranks) {
    Trainer trainer(options, world.base(), world.shards(), ranks);
    if (std::filesystem::exists(state)) {
      trainer.load_state(state, {});
    }
    if (ranks.rank() != 0) {
      return trainer.follow();
    }
    reports = steps_of(trainer, 2);
    trainer.save_state(state, {});
  });
  return reports;
}

TEST(ShardedTraining, GoesOnInAnyStage) {
  for (const TrainingOptions& options : every_training()) {
    const World world;
    const auto whole = steps_on(1, options, world, 8);
    const auto two = [&whole](std::size_t from) { return std::span(whole).subspan(from, 2); };
    expect_near(go_on(options, 2, world), two(0));
    expect_near(go_on(sharded(options), 3, world), two(2));
    expect_near(go_on(sharded(options), 2, world), two(4));
    expect_near(go_on(options, 1, world), two(6));
  }
}

TEST(ShardedTraining, GoesOnToTheBit) {
  for (const TrainingOptions& options : every_training()) {
    const World world;
    const auto whole = steps_on(2, sharded(options), world, 4);
    expect_same(go_on(sharded(options), 2, world), std::span(whole).first(2));
    expect_same(go_on(sharded(options), 2, world), std::span(whole).last(2));
  }
}

// Fails in the middle of a step, while the others wait for a layer.
TEST(ShardedTraining, ARankThatFailsIsNamed) {
  const World world;
  const TrainingOptions options = sharded(in_parts(testing::language_options()));
  const std::string error = error_of([&] {
    parallel::on_ranks(3, "--data-parallel", [&](parallel::Communicator& ranks) {
      Trainer trainer(options, world.base(), world.shards(), ranks);
      if (ranks.rank() == 2) {
        std::byte task{};  // receives the step's task
        ranks.meet();
        ranks.broadcast({&task, 1});
        fail("out of memory");
      }
      ranks.rank() == 0 ? static_cast<void>(trainer.step()) : trainer.follow();
    });
  });
  EXPECT_EQ(error, "rank 2: out of memory");
}

}  // namespace
}  // namespace winnow::train
