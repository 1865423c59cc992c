// A model read from its directory, ready to run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "api/rank_team.h"
#include "base/error.h"
#include "engine/options.h"
#include "engine/runner.h"
#include "model/checkpoint.h"
#include "model/model.h"

namespace winnow::engine {

struct LoadedModel {
  model::Model model;  // of several ranks, rank 0's part
  EngineConfig engine;
  std::int64_t parameters = 0;
  std::unique_ptr<RankTeam> team = {};          // null: this process has the whole model
  std::unique_ptr<const Backend> backend = {};  // the whole model on its devices

  [[nodiscard]] const model::ModelSpec& spec() const { return backend->spec(); }
  [[nodiscard]] kvcache::CacheShape cache_shape() const { return backend->cache_shape(); }
};

/// Thrown by load_model() in a process that is not the first of its ranks, when these have ended:
/// there is nothing left for it to do.
class RankEnded : public Error {
 public:
  RankEnded() : Error("this rank has done what rank 0 asked of it") {}
};

/// `model` on the device that `config` names.
std::unique_ptr<const LoadedModel> place_model(model::Model model, const EngineConfig& config,
                                               std::int64_t parameters);

/// The model of `source` on as many ranks as `config` says. Throws RankEnded, too.
std::unique_ptr<const LoadedModel> place_ranks(PartSource source, const EngineConfig& config,
                                               std::int64_t parameters);

/// Opens options.model, with its probe if there is one.
model::Checkpoint open_checkpoint(const LoadOptions& options);

/// The statistics that options.calibration holds, of a model; null where there are none.
std::shared_ptr<const kvcache::Calibration> load_calibration(const LoadOptions& options,
                                                             const model::ModelSpec& model);

/// Opens options.model, checks `options` against it, sets the number of threads, reads the weights.
/// Of several ranks only the first returns; others obey it and throw RankEnded.
std::unique_ptr<const LoadedModel> load_model(const LoadOptions& options);

/// Identifies the model of load_model(): its files, the context that its RoPE is set up for, its
/// probe and calibration.
std::string model_digest(const LoadOptions& options);

}  // namespace winnow::engine
