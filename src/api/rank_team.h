// The ranks that run one model together, as seen by one of them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "engine/runner.h"
#include "kvcache/calibration.h"
#include "model/checkpoint.h"
#include "model/model.h"
#include "parallel/communicator.h"

namespace winnow::engine {

/// The source from which ranks load their parts.
struct PartSource {
  model::ModelSpec whole;
  std::function<model::Weights(const model::Shard&)> load;
  std::string digest;                                 // must be the same on all ranks
  std::optional<kvcache::DrawnDecisions> drawn = {};  // for benchmarks: Model::draw_decisions()
  std::shared_ptr<const kvcache::Calibration> calibration = {};  // of the whole model, or null
};
PartSource parts_of(const model::Checkpoint& checkpoint, const EngineConfig& config,
                    std::shared_ptr<const kvcache::Calibration> calibration = nullptr);

/// The ranks are processes that a launcher has started, or else threads of this process. Rank 0
/// answers requests; the others execute its commands (engine/ranks/member.h).
class RankTeam {
 public:
  /// Joins the team of `config.ranks` for the model of `source`. Throws Error if ranks differ in
  /// number, version, model or settings.
  RankTeam(PartSource source, const EngineConfig& config);
  /// Waits for the ranks of this process, which end with rank 0's backend.
  ~RankTeam();
  RankTeam(const RankTeam&) = delete;
  RankTeam& operator=(const RankTeam&) = delete;

  [[nodiscard]] bool is_first() const { return ranks_->rank() == 0; }
  /// This rank's part of the model.
  [[nodiscard]] model::Model load_part() const;
  /// On rank 0: the backend of the whole model, which uses rank 0's `part`.
  [[nodiscard]] std::unique_ptr<Backend> make_backend(const model::Model& part);
  /// On other ranks: executes rank 0's commands until it ends.
  void obey(const model::Model& part);

 private:
  [[nodiscard]] model::Model load_part_of(const parallel::Communicator& ranks) const;
  void join_processes();
  void start_threads();

  PartSource source_;
  EngineConfig config_;
  std::unique_ptr<parallel::Communicator> ranks_;
  std::vector<std::jthread> threads_;  // the other ranks, if they are threads
};

}  // namespace winnow::engine
