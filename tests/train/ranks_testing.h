// Runs on ranks that are threads, and comparisons of their results.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "parallel/on_ranks.h"
#include "train/training_world.h"

namespace winnow::train::testing {

/// Runs `lead` with rank 0's trainer.
inline void on_trainers(int count, const TrainingOptions& options, const World& world,
                        const std::function<void(Trainer&)>& lead) {
  parallel::on_ranks(count, "--data-parallel", [&](parallel::Communicator& ranks) {
    Trainer trainer(options, world.base(), world.shards(), ranks);
    ranks.rank() == 0 ? lead(trainer) : trainer.follow();
  });
}

inline std::vector<StepReport> steps_of(Trainer& trainer, int steps) {
  std::vector<StepReport> reports(static_cast<std::size_t>(steps));
  std::ranges::generate(reports, [&trainer] { return trainer.step(); });
  return reports;
}

inline std::vector<StepReport> steps_on(int ranks, const TrainingOptions& options,
                                        const World& world, int steps) {
  std::vector<StepReport> reports;
  on_trainers(ranks, options, world, [&](Trainer& trainer) { reports = steps_of(trainer, steps); });
  return reports;
}

inline void expect_near(double a, double b, const char* what) {
  EXPECT_NEAR(a, b, 1e-5 + 2e-4 * std::abs(b)) << what;
}

/// Equal except for the order of sums.
inline void expect_near(std::span<const StepReport> reports, std::span<const StepReport> expected) {
  ASSERT_EQ(reports.size(), expected.size());
  for (std::size_t i = 0; i < reports.size(); ++i) {
    SCOPED_TRACE(i);
    expect_near(reports[i].loss, expected[i].loss, "loss");
    expect_near(reports[i].norm, expected[i].norm, "norm");
    expect_near(reports[i].decision_norm, expected[i].decision_norm, "norm of decisions");
    EXPECT_EQ(reports[i].tokens, expected[i].tokens);
    ASSERT_EQ(reports[i].eviction.has_value(), expected[i].eviction.has_value());
    if (reports[i].eviction) {
      expect_near(reports[i].eviction->share, expected[i].eviction->share, "evicted");
      expect_near(reports[i].eviction->price, expected[i].eviction->price, "price");
    }
  }
}

inline void expect_same(std::span<const StepReport> reports, std::span<const StepReport> expected) {
  ASSERT_EQ(reports.size(), expected.size());
  for (std::size_t i = 0; i < reports.size(); ++i) {
    EXPECT_EQ(reports[i].loss, expected[i].loss) << i;
    EXPECT_EQ(reports[i].norm, expected[i].norm) << i;
    EXPECT_EQ(reports[i].decision_norm, expected[i].decision_norm) << i;
  }
}

/// Five parts, so that ranks have different numbers of them; decisions begin at the second step.
inline TrainingOptions in_parts(TrainingOptions options) {
  options.batch = 5;
  options.micro_batch = 1;
  if (options.retrofit) {
    options.retrofit->fade_steps = std::min<std::int64_t>(options.retrofit->fade_steps, 1);
    options.retrofit->dms.scale = 4.0F;  // at 100, decisions near the threshold may differ
  }
  return options;
}

inline std::vector<TrainingOptions> every_training() {
  auto all = every_retrofit();
  std::ranges::copy(dmc_ablations(), std::back_inserter(all));
  all.push_back(retrofit_options(model::DmsConfig::Source::borrowed));
  all.back().retrofit->eviction = EvictionLoss::one_sided;
  all.push_back(language_options());
  all.push_back(pretraining_options());
  std::ranges::transform(all, all.begin(), in_parts);
  return all;
}

}  // namespace winnow::train::testing
