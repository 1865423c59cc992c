// A model read from its directory, ready to run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "api/rank_team.h"
#include "base/error.h"
#include "engine/options.h"
#include "engine/runner.h"
#include "model/checkpoint.h"
#include "model/model.h"

namespace winnow::engine {

struct LoadedModel {
  model::Model model;  // with several ranks, rank 0's part
  EngineConfig engine;
  std::int64_t parameters = 0;
  std::unique_ptr<const LoadedModel> draft = {};  // drafts for it (engine.draft_model); may be null
  std::unique_ptr<RankTeam> team = {};            // null: this process has the whole model
  std::unique_ptr<const Backend> backend = {};    // the whole model on its devices

  [[nodiscard]] const model::ModelSpec& spec() const { return backend->spec(); }
  [[nodiscard]] kvcache::CacheShape cache_shape() const { return backend->cache_shape(); }
};

/// Thrown by load_model() in a process other than rank 0 when the group of ranks has ended: the
/// process has nothing left to do.
class RankEnded : public Error {
 public:
  RankEnded() : Error("this rank has done what rank 0 asked of it") {}
};

/// Puts `model` on the device that `config` names. `draft`: the owner of config.draft_model.
std::unique_ptr<const LoadedModel> place_model(model::Model model, const EngineConfig& config,
                                               std::int64_t parameters,
                                               std::unique_ptr<const LoadedModel> draft = nullptr);

/// Places a draft model with `own` configuration for a model with `config`, which gets it and a
/// part of the memory for it.
std::unique_ptr<const LoadedModel> place_draft_model(model::Model draft, const EngineConfig& own,
                                                     std::int64_t parameters,
                                                     const model::ModelSpec& spec,
                                                     EngineConfig& config);

/// Opens options.draft_model, a model or a head, for a model with the description `spec`; nullopt
/// if the option is not set. Throws Error if it has another vocabulary, or is a head for another
/// model.
std::optional<model::Checkpoint> open_draft_model(const LoadOptions& options,
                                                  const model::ModelSpec& spec);

/// Loads what open_draft_model() has opened and places it; null for nullopt.
std::unique_ptr<const LoadedModel> load_draft_model(const LoadOptions& options,
                                                    const std::optional<model::Checkpoint>& draft,
                                                    const model::Model& model,
                                                    EngineConfig& config);

/// Loads the model of `source` on config.ranks ranks. May throw RankEnded.
std::unique_ptr<const LoadedModel> place_ranks(PartSource source, const EngineConfig& config,
                                               std::int64_t parameters);

/// Opens options.model, with its probe if there is one.
model::Checkpoint open_checkpoint(const LoadOptions& options);

/// The statistics in options.calibration, checked for a model; null if the option is not set.
std::shared_ptr<const kvcache::Calibration> load_calibration(const LoadOptions& options,
                                                             const model::ModelSpec& model);

/// Opens options.model, checks `options` against it, sets the number of threads, reads the weights.
/// With several ranks only rank 0 returns; the others execute its commands and throw RankEnded.
std::unique_ptr<const LoadedModel> load_model(const LoadOptions& options);

/// A digest of the model of load_model(): its files, the context for which its RoPE is set up, its
/// probe and calibration.
std::string model_digest(const LoadOptions& options);

}  // namespace winnow::engine
