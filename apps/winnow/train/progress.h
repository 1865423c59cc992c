// The live line of a training run, on standard error.
#pragma once

#include <chrono>
#include <cstdint>

#include "eval/perplexity.h"
#include "train/trainer.h"

namespace winnow::cli {

/// On a terminal one line that is redrawn after every step; elsewhere a line every few seconds.
/// What the held-out data says gets lines of its own.
class TrainingProgress {
 public:
  explicit TrainingProgress(const train::TrainingOptions& options);
  ~TrainingProgress() { clear(); }
  TrainingProgress(const TrainingProgress&) = delete;
  TrainingProgress& operator=(const TrainingProgress&) = delete;

  /// Says that it may take a while until the first step has been made.
  void begin();
  void step(const train::StepReport& report);
  void held_out(std::int64_t step, const eval::PerplexityResult& result);
  /// Removes the line, so that other output can follow.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  std::int64_t steps_;
  bool retrofit_;
  bool distilled_;
  bool terminal_;
  std::int64_t tokens_;  // of a step
  bool drawn_ = false;
  double seconds_per_step_ = 0.0;  // a running mean
  Clock::time_point next_ = Clock::now();
};

}  // namespace winnow::cli
