// Perplexity of a text under a compressed cache, and how much compression changes the predictions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "api/llm_load.h"
#include "eval/journal.h"
#include "eval/statistics.h"

namespace winnow::eval {

struct PerplexityOptions {
  int context = 4096;                     // tokens per window; windows do not overlap
  std::int64_t max_tokens = 0;            // maximum tokens of the text; 0: all
  std::vector<std::int32_t> prefix = {};  // before every window (BOS); not scored
  /// Positions between 1 and `context` that begin a further part of a window: each part is also
  /// reported separately.
  std::vector<int> parts = {};
  int batch = 1;               // windows at the same time
  Journal* journal = nullptr;  // its windows are not run again
  /// Called after every chunk with the tokens done; false stops, and the result covers those.
  std::function<bool(std::int64_t)> on_progress = {};
};

/// Teacher-forced: every token but the first of each window is predicted from those before it, with
/// the decisions that the model makes at inference.
struct PerplexityResult {
  std::int64_t tokens = 0;         // scored tokens
  double nll_per_token = 0.0;      // nats
  double nll_error = 0.0;          // standard error of nll_per_token over windows
  double compression_ratio = 1.0;  // at the end of a window, mean over full windows
  double kv_bytes = 0.0;           // at the end of a window, mean over full windows

  /// Compared with a reference: KL(reference || model) in nats per token, and how often both have
  /// the same most likely token.
  struct Divergence {
    double kld = 0.0;
    double kld_error = 0.0;  // standard error over windows
    double top1_agreement = 0.0;
    double reference_nll = 0.0;  // nats per token
    Estimate change;             // of nats per token, reference to model, by window
  };
  std::optional<Divergence> divergence;

  /// For the tokens at positions [first, end) of each window.
  struct Part {
    int first = 0;
    int end = 0;
    std::int64_t tokens = 0;
    double nll = 0.0;  // nats per token
    double reference_nll = 0.0;
    Estimate change;
  };
  std::vector<Part> parts;  // empty unless PerplexityOptions::parts

  [[nodiscard]] double perplexity() const;
};

/// `reference` (the same vocabulary; may be null) runs on the same windows as `model`.
PerplexityResult measure_perplexity(const engine::LoadedModel& model,
                                    const engine::LoadedModel* reference,
                                    std::span<const std::int32_t> tokens,
                                    const PerplexityOptions& options);

}  // namespace winnow::eval
