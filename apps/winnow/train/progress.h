// The progress line of a training run, on standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "eval/perplexity.h"
#include "train/trainer.h"

namespace winnow::cli {

/// On a terminal, one line that is redrawn after every step; elsewhere a line every few seconds.
/// Held-out results get their own lines.
class TrainingProgress {
 public:
  explicit TrainingProgress(const train::TrainingOptions& options);
  ~TrainingProgress() { clear(); }
  TrainingProgress(const TrainingProgress&) = delete;
  TrainingProgress& operator=(const TrainingProgress&) = delete;

  /// Tells the user that the first step may take a while.
  void begin();
  void step(const train::StepReport& report);
  void held_out(std::int64_t step, const eval::PerplexityResult& result);
  /// "; CR 3.10 of the target 4.00: missed", by the last measurement on held-out text; with a
  /// window compared with what the target allows there. Empty if there is no target or was no
  /// measurement.
  [[nodiscard]] std::string verdict() const;
  /// Removes the line, so that other output can follow.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  // The ratio on held-out text if all keys are marked as the target says: a window is never
  // evicted.
  [[nodiscard]] double allowed() const;

  std::int64_t steps_;
  bool retrofit_;
  bool distilled_;
  bool terminal_;
  std::int64_t tokens_;  // per step
  double window_;        // tokens that DMS never evicts; 0: none
  double length_;        // tokens of a text
  bool drawn_ = false;
  double seconds_per_step_ = 0.0;  // a running mean
  double target_ = 0.0;            // compression ratio; 0: none
  double reached_ = 0.0;           // on held-out text; 0: not measured
  Clock::time_point next_ = Clock::now();
};

}  // namespace winnow::cli
