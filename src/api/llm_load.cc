#include "api/llm_load.h"

#include <utility>

#include "base/error.h"
#include "base/threads.h"
#include "checkpoint/digest.h"
#include "model/checkpoint.h"

namespace winnow::engine {

std::unique_ptr<const LoadedModel> place_model(model::Model model, const EngineConfig& config,
                                               std::int64_t parameters) {
  auto loaded =
      std::make_unique<LoadedModel>(LoadedModel{std::move(model), config, parameters, nullptr});
  loaded->backend = make_backend(loaded->model, config);
  return loaded;
}

std::unique_ptr<const LoadedModel> load_model(const LoadOptions& options) {
  require(!options.model.empty(), "--model: no model directory was given");
  const model::Checkpoint checkpoint = model::Checkpoint::open(options.model, options.context);
  const EngineConfig config = resolve_options(options, checkpoint.spec());
  set_threads(options.threads);
  const FixedThreads fixed;  // others may load meanwhile
  return place_model({checkpoint.spec(),
                      model::load_weights(checkpoint, host_format(config), !config.cuda_device)},
                     config, checkpoint.parameter_count());
}

std::string model_digest(const LoadOptions& options) {
  const std::string files = checkpoint_digest(options.model);
  return options.context ? fmt::format("{} for {} tokens", files, *options.context) : files;
}

}  // namespace winnow::engine
