#include "engine/llm_load.h"

#include "base/error.h"
#include "base/threads.h"
#include "checkpoint/checkpoint.h"

namespace winnow::engine {

std::unique_ptr<const LoadedModel> load_model(const LoadOptions& options) {
  require(!options.model.empty(), "--model: no model directory was given");
  const auto format = parse_weights(options.weights);
  const Checkpoint checkpoint = Checkpoint::open(options.model);
  const EngineConfig config = resolve_options(options, checkpoint.config());
  set_threads(options.threads);
  return std::make_unique<const LoadedModel>(
      LoadedModel{model::Model(checkpoint.config(), model::load_weights(checkpoint, format)),
                  config, checkpoint.parameter_count()});
}

}  // namespace winnow::engine
