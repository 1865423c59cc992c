// Runs on devices, and comparisons of what they changed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>

#include "parallel/on_ranks.h"
#include "train/training_world.h"

namespace winnow::train::testing::devices {

inline TrainingOptions on_devices(TrainingOptions options, int ranks) {
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

inline std::vector<TrainingOptions> every_training() {
  auto all = testing::every_retrofit();
  all.push_back(testing::language_options());
  all.push_back(testing::pretraining_options());
  return all;
}

/// Updates of rank 0's trainer, starting from `state` if it exists; returns the state after them.
inline std::vector<StepReport> steps_on(int count, const TrainingOptions& given, const World& world,
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

/// The norm of the arrays' difference, relative to the second one.
inline double distance(std::span<const float> a, std::span<const float> b) {
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2.0);
    norm += std::pow(double{b[i]}, 2.0);
  }
  return std::sqrt(difference / norm);
}

inline std::vector<float> change(std::span<const float> after, std::span<const float> before) {
  std::vector<float> result(after.size());
  std::ranges::transform(after, before, result.begin(), std::minus<>());
  return result;
}

/// The first update of a run, to rounding.
inline void expect_near(const StepReport& report, const StepReport& expected) {
  EXPECT_NEAR(report.loss, expected.loss, 1e-2 * expected.loss + 5e-5);
  EXPECT_NEAR(report.norm, expected.norm, 2e-2 * expected.norm);
  EXPECT_NEAR(report.decision_norm, expected.decision_norm, 2e-2 * expected.decision_norm + 1e-9);
  if (expected.eviction) {
    EXPECT_NEAR(report.eviction->share, expected.eviction->share, 5e-3);
  }
}

inline double mean_loss(std::span<const StepReport> reports) {
  const auto add = [](double sum, const StepReport& report) { return sum + report.loss; };
  return std::accumulate(reports.begin(), reports.end(), 0.0, add) /
         static_cast<double>(reports.size());
}

/// A whole run that learns, to rounding: the means of some updates each, as rounding moves the loss
/// of a single one by more.
inline void expect_learns_like(std::span<const StepReport> reports,
                               std::span<const StepReport> expected, double tolerance = 0.03) {
  constexpr std::size_t kUpdates = 10;
  ASSERT_LT(expected.back().loss, 0.7 * expected.front().loss);
  ASSERT_EQ(reports.size(), expected.size());
  ASSERT_EQ(reports.size() % kUpdates, 0U);
  for (std::size_t i = 0; i < expected.size(); i += kUpdates) {
    const double usual = mean_loss(expected.subspan(i, kUpdates));
    EXPECT_NEAR(mean_loss(reports.subspan(i, kUpdates)), usual, tolerance * usual) << i;
  }
}

/// The losses after the first `done` updates of `whole`, to rounding.
inline void expect_goes_on_like(std::span<const StepReport> rest, std::span<const StepReport> whole,
                                std::size_t done) {
  ASSERT_EQ(rest.size(), whole.size() - done);
  for (std::size_t i = 0; i < rest.size(); ++i) {
    EXPECT_NEAR(rest[i].loss, whole[done + i].loss, 0.02 * whole[done + i].loss + 2e-4) << i;
  }
}

/// What has changed from one saved state to another, relative to what changed to `expected`.
inline void expect_changes_near(const World& world, const std::string& from, const std::string& to,
                                const std::string& expected, double most) {
  const SafetensorsFile begin(world.path(from));
  const SafetensorsFile all(world.path(to));
  const SafetensorsFile one(world.path(expected));
  for (const char* array : {"values", "first_moments", "second_moments"}) {
    const auto before = begin.tensor(array).as<float>();
    EXPECT_LE(distance(change(all.tensor(array).as<float>(), before),
                       change(one.tensor(array).as<float>(), before)),
              most)
        << array;
  }
}

}  // namespace winnow::train::testing::devices
