// The engine's backend for the CPU.
#pragma once

#include <optional>

#include "engine/engine.h"
#include "engine/runner.h"
#include "parallel/communicator.h"

namespace winnow::engine {

class CpuBackend : public Backend {
 public:
  /// `model` must outlive the backend. `ranks` compute the other parts of the model; they must
  /// outlive it, too, and may be null.
  explicit CpuBackend(const model::Model& model, parallel::Communicator* ranks = nullptr)
      : model_(model), ranks_(ranks) {}
  [[nodiscard]] const model::ModelSpec& spec() const override { return model_.spec(); }
  [[nodiscard]] kvcache::CacheShape cache_shape() const override { return model_.cache_shape(); }
  [[nodiscard]] std::size_t weight_bytes_per_step(int sequences) const override;
  [[nodiscard]] double read_bandwidth() const override;
  [[nodiscard]] std::optional<std::size_t> memory_in_use() const override { return std::nullopt; }
  [[nodiscard]] bool hands_out_stream() const override { return true; }
  [[nodiscard]] std::unique_ptr<Runner> make_runner(const EngineConfig& config,
                                                    int tokens = 0) const override;

 private:
  const model::Model& model_;
  parallel::Communicator* ranks_;
};

}  // namespace winnow::engine
