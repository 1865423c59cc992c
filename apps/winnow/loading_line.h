// The progress of loading a model, on a terminal.
#pragma once

#include <chrono>

namespace winnow::cli {

/// For LoadOptions::on_layer: a line on standard error, if that is a terminal and loading takes
/// long; it disappears at the end. The first Ctrl-C ends the command.
class LoadingLine {
 public:
  void operator()(int done, int layers);

 private:
  using Clock = std::chrono::steady_clock;

  void clear();

  Clock::time_point next_;  // when to draw again
  bool drawn_ = false;
};

}  // namespace winnow::cli
