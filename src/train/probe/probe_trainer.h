// Trains a compression probe for a plain model: KVzap's linear one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "api/llm_load.h"
#include "model/probe/probe.h"
#include "train/probe/probe_sums.h"
#include "train/probe/repetition.h"

namespace winnow::train {

/// Throws Error, which says why, if no probe can be trained for the model.
void require_probe_model(const model::ModelSpec& spec);

struct ProbeTrainingOptions {
  double penalty = 1.0;                        // of the ridge regression
  std::function<void(std::int64_t)> on_piece;  // receives the number of pieces done; may throw
  /// Optional: where the training goes on if an earlier one left sums there. They are kept after a
  /// text every 10 minutes, after the last, and when reading ends by an exception.
  const ProbeSumsFile* kept = nullptr;
};

/// What is measured on pieces that the regression has not seen.
struct ProbeFit {
  std::int64_t tokens = 0;
  double explained = 0.0;             // share of the scores' variance, over all layers and heads
  std::vector<float> predicted = {};  // all scores that the probe gives, sorted

  /// The threshold below which all but 1 / ratio of the scores lie.
  [[nodiscard]] float threshold(double ratio) const;
};

struct TrainedProbe {
  std::vector<model::LinearScorer> layers;  // by layer; empty where it does not compress
  std::int64_t tokens = 0;                  // that it was trained on
  ProbeFit fit;
};

/// How many of `pieces` are held out to measure the fit: one in 20.
std::size_t held_out_pieces(std::size_t pieces);

/// Learns from all pieces but the last, which are held out; at least 2. The model runs on the CPU
/// with a dense cache. Throws Error when the cache has no room for a piece and its repetition.
TrainedProbe train_probe(const engine::LoadedModel& model, const Repeater& repeater,
                         std::span<const std::span<const std::int32_t>> pieces,
                         const ProbeTrainingOptions& options);

}  // namespace winnow::train
