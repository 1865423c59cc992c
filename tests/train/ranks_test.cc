// Training over ranks (threads here; processes in tests/parallel/mpi_processes_test.py) gives the
// results of one rank, whatever their number.
#include <gtest/gtest.h>

#include <algorithm>

#include "train/memory_plan.h"
#include "train/partition.h"
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

TEST(TrainingRanks, HaveTheLossesOfOne) {
  const World world;
  for (const TrainingOptions& options : every_training()) {
    const auto expected = steps_on(1, options, world, 6);
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(ranks);
      expect_near(steps_on(ranks, options, world, 6), expected);
    }
  }
}

TEST(TrainingRanks, CheckThatTheStudentIsItsTeacher) {
  const World world;
  for (const TrainingOptions& options : testing::every_retrofit()) {
    on_trainers(2, options, world,
                [](Trainer& trainer) { EXPECT_LT(trainer.check_student_is_teacher(), 1e-6); });
  }
}

// With the same number of ranks, equal to the bit; with another one, up to rounding.
TEST(TrainingRanks, GoOnWithAnyNumber) {
  const World world;
  const auto state = world.path("state");
  for (const TrainingOptions& options : every_training()) {
    const auto whole = steps_on(2, options, world, 6);
    on_trainers(2, options, world, [&](Trainer& trainer) {
      steps_of(trainer, 3);
      trainer.save_state(state, {});
    });
    for (const int count : {1, 2, 3}) {
      SCOPED_TRACE(count);
      std::vector<StepReport> rest;
      parallel::on_ranks(count, "--data-parallel", [&](parallel::Communicator& ranks) {
        Trainer trainer(options, world.base(), world.shards(), ranks);
        trainer.load_state(state, {});
        if (ranks.rank() != 0) {
          return trainer.follow();
        }
        rest = steps_of(trainer, 3);
      });
      if (count == 2) {
        expect_same(rest, std::span(whole).subspan(3));
      } else {
        expect_near(rest, std::span(whole).subspan(3));
      }
    }
  }
}

RunOptions ranked_options(const World& world, const std::string& out) {
  RunOptions options;
  options.out = world.path(out);
  options.save_every = 4;
  options.save_type = DType::f32;
  return options;
}

bool run_on(int count, const TrainingOptions& options, const World& world, const RunOptions& run) {
  bool finished = false;
  parallel::on_ranks(count, "--data-parallel", [&](parallel::Communicator& ranks) {
    Trainer trainer(options, world.base(), world.shards(), ranks);
    if (ranks.rank() != 0) {
      return follow_training(trainer, run);
    }
    finished = run_training(trainer, nullptr, run);
  });
  return finished;
}

TrainingOptions short_ranked_run(ZeroStage stage = ZeroStage::moments) {
  TrainingOptions options = in_parts(testing::retrofit_options(Source::borrowed));
  options.steps = 10;
  options.zero_stage = stage;
  return options;
}

// A rank that dies ends the others; the saved state is whole, and any number of ranks can resume.
TEST(TrainingRanks, ARunThatWasKilledGoesOn) {
  struct Killed {};
  for (const ZeroStage stage : {ZeroStage::moments, ZeroStage::everything}) {
    const World world;
    const TrainingOptions options = short_ranked_run(stage);
    run_on(3, options, world, ranked_options(world, "whole"));
    RunOptions run = ranked_options(world, "parts");
    run.on_step = [](const StepReport& report) {
      if (report.step == 7) {
        throw Killed();
      }
    };
    EXPECT_THROW(run_on(3, options, world, run), Killed);
    run.on_step = {};
    run.resume = true;
    EXPECT_TRUE(run_on(3, options, world, run));
    expect_same_tensors(model::Checkpoint::open(world.path("whole")).tensors(),
                        model::Checkpoint::open(world.path("parts")).tensors());
  }
}

TEST(TrainingRanks, TheOneThatFailsIsNamed) {
  const World world;
  const auto run = [&](int bad) {
    return error_of([&] {
      parallel::on_ranks(3, "--data-parallel", [&](parallel::Communicator& ranks) {
        Trainer trainer(short_ranked_run(), world.base(), world.shards(), ranks);
        if (ranks.rank() == bad) {
          trainer.load_state(world.path("none"), {});
        }
        ranks.rank() == 0 ? static_cast<void>(trainer.step()) : trainer.follow();
      });
    });
  };
  EXPECT_TRUE(run(2).starts_with("rank 2: " + world.path("none").string())) << run(2);
  EXPECT_TRUE(run(0).starts_with(world.path("none").string())) << run(0);
}

TEST(TrainingRanks, AreNoMoreThanParts) {
  const World world;
  TrainingOptions options = in_parts(testing::language_options());
  options.ranks = 5;
  validate(options, world.base().spec());
  options.ranks = 6;
  EXPECT_EQ(error_of([&] { validate(options, world.base().spec()); }),
            "--data-parallel 6: expected 1 to 5, as many ranks as --batch 5 has parts of "
            "--micro-batch 1");
}

TEST(Partition, SharesOutAllElements) {
  const ParameterList list(testing::tiny_config("llama"), Trained::everything);
  for (const int ranks : {1, 2, 3, 7}) {
    for (const bool whole_matrices : {false, true}) {
      std::size_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Partition part(list, rank, ranks, whole_matrices);
        EXPECT_EQ(part.begin(), next);
        EXPECT_EQ(part.begin() % 8, 0U);
        EXPECT_LE(part.size(), part.largest());
        next = part.end();
        for (const Parameter& parameter : list.list()) {
          const bool cut =
              parameter.offset < part.begin() && part.begin() < parameter.offset + parameter.count;
          EXPECT_FALSE(whole_matrices && cut && parameter.role == Role::matrix) << parameter.name;
        }
      }
      EXPECT_EQ(next, list.size());
    }
  }
}

// ZeRO: a rank has its share of the moments, and all of the rest.
TEST(MemoryPlan, SharesOutMoments) {
  const model::ModelSpec spec = testing::tiny_config("llama");
  TrainingOptions options = in_parts(testing::language_options());
  const MemoryPlan one = plan_memory(options, spec, 0);
  options.ranks = 2;
  const MemoryPlan two = plan_memory(options, spec, 0);
  const auto bytes = [](const MemoryPlan& plan, std::string_view name) {
    const auto part = std::ranges::find(plan.parts, name, &MemoryPlan::Part::name);
    return part == plan.parts.end() ? std::size_t{0} : part->bytes;
  };
  EXPECT_GT(bytes(one, "moments, fp32"), 0U);
  EXPECT_NEAR(static_cast<double>(bytes(two, "a rank's moments, fp32")),
              static_cast<double>(bytes(one, "moments, fp32")) / 2.0, 256.0);
  EXPECT_EQ(one.total(), one.of_one());
  EXPECT_GT(two.total(), two.of_one());
  EXPECT_LT(two.total(), 2 * two.of_one());
}

}  // namespace
}  // namespace winnow::train
