// A training run from its first step, or its latest checkpoint, to its end.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/file_lock.h"
#include "train/held_out.h"
#include "train/trainer.h"

namespace winnow::train {

struct RunOptions {
  /// Receives the model; its folder training/ receives state, metrics and tokenised data.
  std::filesystem::path out;
  nlohmann::ordered_json recipe;  // must match a checkpoint's to resume from it
  bool resume = false;
  std::int64_t save_every = 0;  // steps between checkpoints; 0: only at the end
  /// Steps between measurements on held-out text; 0: only before the first step and after the last.
  std::int64_t eval_every = 0;
  /// Steps after which the model is also written to step-N in `out`, to be kept.
  std::vector<std::int64_t> keep_at;
  DType save_type = DType::bf16;

  /// Called as the run advances.
  std::function<void()> on_begin;  // before the first step, if any is left
  std::function<void(const StepReport&)> on_step;
  std::function<void(std::int64_t step, const eval::PerplexityResult&)> on_held_out;
  std::function<void(std::int64_t step)> on_checkpoint;
  /// Asked between steps: true writes a checkpoint and ends the run.
  std::function<bool()> should_stop;
};

/// The file in `out` that keeps a run's state.
std::filesystem::path state_file(const std::filesystem::path& out);

/// Holds `out`, which it creates if needed, against other runs. Folders in which nothing was
/// written are removed at the end. Throws the errors of FileLock.
class RunLock {
 public:
  explicit RunLock(const std::filesystem::path& out);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  std::filesystem::path folder_;  // training/ in `out`
  std::optional<FileLock> lock_;
};

/// Error when there is a state or a model but `resume` is not set, or no state but it is set.
void check_state(const std::filesystem::path& out, bool resume);

/// A run that is resumed after its last step only measures and writes the model again, with the
/// current options: a different RetrofitOptions::final_offset, for example.
/// True when all steps are done, false when it was stopped. `held_out` may be null. Throws the
/// errors of check_state(). The caller holds a RunLock.
bool run_training(Trainer& trainer, const HeldOut* held_out, const RunOptions& options);

/// For ranks other than 0, while rank 0 is in run_training() with the same options: they compute,
/// and write nothing.
void follow_training(Trainer& trainer, const RunOptions& options);

}  // namespace winnow::train
