#include "train/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "checkpoint/atomic_file.h"
#include "train/metrics.h"

namespace winnow::train {
namespace {

// The student starts as the teacher, up to rounding: the order of sums differs.
constexpr double kRounding = 1e-4;

void create_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require(!error, "{}: cannot create: {}", folder.string(), error.message());
}

class Run {
 public:
  Run(Trainer& trainer, const HeldOut* held_out, const RunOptions& options)
      : trainer_(trainer),
        held_out_(held_out),
        options_(options),
        metrics_(options.out / "training" / "metrics.jsonl", trainer.steps_done()),
        whole_(trainer.steps_done()) {}

  bool run() {
    const std::int64_t steps = trainer_.options().steps;
    if (trainer_.steps_done() == 0 && held_out_ != nullptr) {
      note(held_out_->measure_base([this] { return !stopped(); }));
    }
    if (trainer_.steps_done() == steps) {  // resumed after its end: only writes the model again
      evaluate();
      checkpoint();
    }
    while (trainer_.steps_done() < steps) {
      if (stopped()) {
        checkpoint();
        return false;
      }
      const StepReport report = trainer_.step();
      metrics_.write(to_json(report));
      if (options_.on_step) {
        options_.on_step(report);
      }
      keep(report);
      const bool last = report.step == steps;
      if (last || due(options_.eval_every)) {
        evaluate();
      }
      if (last || due(options_.save_every)) {
        checkpoint();
      }
    }
    return true;
  }

 private:
  [[nodiscard]] bool stopped() const { return options_.should_stop && options_.should_stop(); }
  [[nodiscard]] bool due(std::int64_t every) const {
    return every > 0 && trainer_.steps_done() % every == 0;
  }

  void evaluate() {
    if (held_out_ == nullptr) {
      return;
    }
    const auto model =
        std::make_shared<const ExportedModel>(export_model(trainer_, options_.save_type));
    note(held_out_->measure(model, [this] { return !stopped(); }));
  }

  void note(const eval::PerplexityResult& result) {
    if (stopped()) {
      return;  // it covers only a part of the text
    }
    metrics_.write(to_json(trainer_.steps_done(), result));
    if (options_.on_held_out) {
      options_.on_held_out(trainer_.steps_done(), result);
    }
  }

  // The configuration names the ratio of that moment, not the one that the run leads to.
  void keep(const StepReport& report) {
    if (std::ranges::find(options_.keep_at, report.step) == options_.keep_at.end()) {
      return;
    }
    ExportedModel model = export_model(trainer_, options_.save_type);
    if (report.eviction) {
      const double ratio = std::round(100.0 / (1.0 - report.eviction->target)) / 100.0;
      (model.spec.dms ? model.spec.dms->target_cr : model.spec.dmc->target_cr) = ratio;
    }
    save_model(options_.out / fmt::format("step-{}", report.step), model);
  }

  void checkpoint() {
    try {
      trainer_.save_state(state_file(options_.out), options_.recipe);
      whole_ = trainer_.steps_done();
      save_model(options_.out, export_model(trainer_, options_.save_type));
    } catch (const Error& error) {  // most likely a full disk
      require(whole_ > 0, "{}; no step is saved yet", error.what());
      fail("{}; the state of step {} is whole: --resume goes on from there", error.what(), whole_);
    }
    if (options_.on_checkpoint) {
      options_.on_checkpoint(trainer_.steps_done());
    }
  }

  Trainer& trainer_;
  const HeldOut* held_out_;
  const RunOptions& options_;
  MetricsFile metrics_;
  std::int64_t whole_;  // the last step whose state is on disk
};

}  // namespace

std::filesystem::path state_file(const std::filesystem::path& out) {
  return out / "training" / "state.safetensors";
}

RunLock::RunLock(const std::filesystem::path& out) : folder_(state_file(out).parent_path()) {
  create_folder(folder_);
  lock_.emplace(folder_ / "lock");
}

RunLock::~RunLock() {
  lock_.reset();
  std::error_code not_empty;
  std::filesystem::remove(folder_, not_empty);
  std::filesystem::remove(folder_.parent_path(), not_empty);
}

void check_state(const std::filesystem::path& out, bool resume) {
  const std::filesystem::path state = state_file(out);
  std::error_code ignored;
  const bool begun = std::filesystem::exists(state, ignored);
  require(!begun || resume,
          "{}: a training run is there: --resume goes on with it, or choose another --out",
          out.string());
  require(begun || !resume, "--resume: {} holds no checkpoint yet: leave --resume out",
          out.string());
  require(resume || !std::filesystem::exists(out / "config.json", ignored),
          "{}: a model is there: choose another --out", out.string());
}

bool run_training(Trainer& trainer, const HeldOut* held_out, const RunOptions& options) {
  check_state(options.out, options.resume);
  const std::filesystem::path state = state_file(options.out);
  create_folder(state.parent_path());
  remove_half_written(options.out);
  remove_half_written(state.parent_path());
  if (options.resume) {
    trainer.load_state(state, options.recipe);
  } else if (trainer.options().retrofit) {
    const double divergence = trainer.check_student_is_teacher();
    require(divergence < kRounding,
            "before the first step the student is {} nats/token from its teacher, expected 0",
            divergence);
  }
  if (options.on_begin && trainer.steps_done() < trainer.options().steps) {
    options.on_begin();
  }
  return Run(trainer, held_out, options).run();
}

void follow_training(Trainer& trainer, const RunOptions& options) {
  if (options.resume) {
    trainer.load_state(state_file(options.out), options.recipe);
  }
  trainer.follow();
}

}  // namespace winnow::train
