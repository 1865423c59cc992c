// The record of a training run: one JSON object per line.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "eval/perplexity.h"
#include "train/trainer.h"

namespace winnow::train {

/// {"step", "loss", "lr", ...} of an update.
nlohmann::ordered_json to_json(const StepReport& report);
/// {"step", "held_out": {"perplexity", "kld", "compression_ratio", ...}}.
nlohmann::ordered_json to_json(std::int64_t step, const eval::PerplexityResult& result);

class MetricsFile {
 public:
  /// Appends after the lines of steps up to `steps_done`; drops later lines, and one cut short by a
  /// crash.
  MetricsFile(std::filesystem::path path, std::int64_t steps_done);
  /// Writes at once. Throws Error on failure.
  void write(const nlohmann::ordered_json& line);

 private:
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};
};

}  // namespace winnow::train
