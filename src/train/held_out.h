// Measures the model in training on held-out text, run by the engine as users will run it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "eval/perplexity.h"
#include "train/export.h"
#include "train/shards.h"

namespace winnow::train {

/// Held-out text, and the base model to compare with.
class HeldOut {
 public:
  struct Options {
    int context = 0;              // tokens per window
    std::int64_t max_tokens = 0;  // from the beginning of the text; 0: all
    DType compute = DType::bf16;
    std::string device = "cpu";
    bool compare = false;  // also measure the divergence from the base model
  };
  HeldOut(const model::Checkpoint& base, const Shards& shards, const Options& options);

  /// Uses hard decisions and the cache of inference. `go_on` is called now and then; if false, the
  /// result covers the part done so far.
  [[nodiscard]] eval::PerplexityResult measure(std::shared_ptr<const ExportedModel> model,
                                               const std::function<bool()>& go_on) const;
  /// The result of the base model itself.
  [[nodiscard]] eval::PerplexityResult measure_base(const std::function<bool()>& go_on) const;

 private:
  [[nodiscard]] eval::PerplexityResult measure(const engine::LoadedModel& model,
                                               const engine::LoadedModel* reference,
                                               const std::function<bool()>& go_on) const;

  Options options_;
  std::unique_ptr<const engine::LoadedModel> base_;
  std::vector<std::int32_t> tokens_;
};

}  // namespace winnow::train
