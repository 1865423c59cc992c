#include "apps/winnow/train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "apps/winnow/output.h"
#include "apps/winnow/progress.h"

namespace winnow::cli {
namespace {

constexpr auto kTrainingLines = std::chrono::seconds(5);

int window_of(const train::TrainingOptions& options) {
  return options.retrofit && !options.retrofit->dmc ? options.retrofit->dms.window : 0;
}

}  // namespace

TrainingProgress::TrainingProgress(const train::TrainingOptions& options)
    : steps_(options.steps),
      retrofit_(options.retrofit.has_value()),
      distilled_(options.retrofit && options.retrofit->main_loss == train::MainLoss::distillation),
      terminal_(::isatty(STDERR_FILENO) == 1),
      tokens_(static_cast<std::int64_t>(options.batch * options.length)),
      window_(window_of(options)),
      length_(static_cast<double>(options.length)) {}

void TrainingProgress::begin() {
  print_note(fmt::format("{} steps of {} tokens; the first line comes after the first step\n",
                         grouped(steps_), grouped(tokens_)));
}

void TrainingProgress::step(const train::StepReport& report) {
  seconds_per_step_ =
      seconds_per_step_ == 0.0 ? report.seconds : 0.9 * seconds_per_step_ + 0.1 * report.seconds;
  if (report.eviction) {
    target_ = 1.0 / (1.0 - report.eviction->target);
  }
  const bool last = report.step == steps_;
  if (!terminal_ && !last && Clock::now() < next_) {
    return;
  }
  next_ = Clock::now() + kTrainingLines;
  std::string line = fmt::format("step {}/{}  {} {:.4f}", report.step, steps_,
                                 distilled_ ? "KL" : "loss", report.loss);
  if (report.eviction) {
    line +=
        fmt::format("  CR {:.2f} of {:.2f}", 1.0 / (1.0 - report.eviction->share + 1e-9), target_);
    if (report.eviction->price > 0.0) {
      line += fmt::format("  price {:.3f}", report.eviction->price);
    }
  } else if (retrofit_) {
    line += "  channels fade, no eviction yet";
  }
  if (report.utilization > 0.0) {
    line += fmt::format("  MFU {:.0f} %",
                        100.0 * report.utilization * report.seconds / seconds_per_step_);
  }
  line += fmt::format(
      "  {} tok/s  ETA {}",
      grouped(static_cast<long long>(static_cast<double>(report.tokens) / seconds_per_step_)),
      readable_duration(seconds_per_step_ * static_cast<double>(steps_ - report.step)));
  if (terminal_) {
    print_note(fmt::format("\r{}\x1b[K", line));
    drawn_ = true;
  } else {
    print_note(line + "\n");
  }
}

void TrainingProgress::held_out(std::int64_t step, const eval::PerplexityResult& result) {
  clear();
  std::string line = fmt::format("step {}: held out: perplexity {:.3f}", step, result.perplexity());
  if (result.divergence) {
    reached_ = result.compression_ratio;
    length_ = std::min(length_, static_cast<double>(result.tokens + 1));
    line += fmt::format(", KLD {:.4f} nats/token, CR {:.2f}", result.divergence->kld,
                        result.compression_ratio);
  }
  print_note(line + "\n");
}

double TrainingProgress::allowed() const {
  const double window = std::min(window_, length_);
  return length_ / (window + (length_ - window) / target_);
}

std::string TrainingProgress::verdict() const {
  constexpr double kNear = 0.95;  // texts differ in what they need
  if (target_ == 0.0 || reached_ == 0.0) {
    return "";
  }
  const char* const word =
      reached_ >= kNear * allowed() ? "reached" : "missed; more --steps come closer";
  return window_ == 0.0
             ? fmt::format("; CR {:.2f} of the target {:.2f}: {}", reached_, target_, word)
             : fmt::format(
                   "; CR {:.2f} of the {:.2f} that the target {:.2f} allows in {:.0f} tokens with "
                   "a "
                   "window of {:.0f}: {}",
                   reached_, allowed(), target_, length_, window_, word);
}

void TrainingProgress::clear() {
  if (drawn_) {
    print_note("\r\x1b[K");
    drawn_ = false;
  }
}

}  // namespace winnow::cli
