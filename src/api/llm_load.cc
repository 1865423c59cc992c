#include "api/llm_load.h"

#include <mutex>
#include <utility>

#include "api/same_vocabulary.h"
#include "base/device_list.h"
#include "base/error.h"
#include "base/note.h"
#include "base/threads.h"
#include "checkpoint/digest.h"
#include "engine/calibration_file.h"
#include "engine/draft_options.h"
#include "engine/weight_memory.h"
#include "model/checkpoint.h"
#include "model/draft_head.h"
#include "parallel/launched_as.h"

namespace winnow::engine {

std::unique_ptr<const LoadedModel> place_ranks(PartSource source, const EngineConfig& config,
                                               std::int64_t parameters) {
  auto team = std::make_unique<RankTeam>(std::move(source), config);
  auto loaded = std::make_unique<LoadedModel>(LoadedModel{team->load_part(), config, parameters});
  if (!team->is_first()) {
    team->obey(loaded->model);
    team.reset();  // tells the other ranks that this one ends
    throw RankEnded();
  }
  loaded->team = std::move(team);
  loaded->backend = loaded->team->make_backend(loaded->model);
  return loaded;
}

std::unique_ptr<const LoadedModel> place_model(model::Model model, const EngineConfig& config,
                                               std::int64_t parameters,
                                               std::unique_ptr<const LoadedModel> draft) {
  auto loaded = std::make_unique<LoadedModel>(LoadedModel{std::move(model), config, parameters});
  loaded->draft = std::move(draft);
  loaded->backend = make_backend(loaded->model, config);
  return loaded;
}

model::Checkpoint open_checkpoint(const LoadOptions& options) {
  require(!options.probe_threshold || !options.probe.empty(), "--probe-threshold {}: needs --probe",
          options.probe_threshold.value_or(0.0));
  require(options.context.value_or(1) >= 1, "--rope-context {}: expected 1 or more",
          options.context.value_or(1));
  require(options.rope_yarn.value_or(1.0) >= 1.0, "--rope-yarn {}: expected 1 or more",
          options.rope_yarn.value_or(1.0));
  std::optional<model::ProbeOptions> probe;
  if (!options.probe.empty()) {
    probe = {.directory = options.probe, .threshold = options.probe_threshold};
  }
  return model::Checkpoint::open(options.model,
                                 {.context = options.context, .yarn = options.rope_yarn}, probe);
}

std::shared_ptr<const kvcache::Calibration> load_calibration(const LoadOptions& options,
                                                             const model::ModelSpec& model) {
  if (options.calibration.empty()) {
    return nullptr;
  }
  return std::make_shared<const kvcache::Calibration>(
      read_calibration(options.calibration, model::cache_shape(model)));
}

std::unique_ptr<const LoadedModel> place_draft_model(model::Model draft, const EngineConfig& own,
                                                     std::int64_t parameters,
                                                     const model::ModelSpec& spec,
                                                     EngineConfig& config) {
  const auto& head = draft.spec().draft_head;
  const bool is_mtp = head && head->kind == model::DraftHeadSpec::Kind::mtp;
  share_cache(config, model::cache_shape(spec), own.cache, draft.cache_shape(),
              is_mtp ? "--speculate mtp" : "--draft-model");
  auto placed = place_model(std::move(draft), own, parameters);
  config.draft_model = placed->backend.get();
  return placed;
}

std::optional<model::Checkpoint> open_draft_model(const LoadOptions& options,
                                                  const model::ModelSpec& spec) {
  if (drafts_by_mtp(options)) {
    require(!options.model.empty(), "--speculate {}: needs --model, whose MTP layer drafts",
            options.speculate);
    return model::open_mtp_layer(options.model, spec);
  }
  if (options.draft_model.empty()) {
    return std::nullopt;
  }
  if (model::is_draft_head(options.draft_model)) {
    return model::open_draft_head(options.draft_model, spec);
  }
  model::Checkpoint checkpoint = open_checkpoint(options_of_draft_model(options));
  require_same_vocabulary(spec, options.model, checkpoint.spec(), options.draft_model);
  return checkpoint;
}

std::unique_ptr<const LoadedModel> load_draft_model(const LoadOptions& options,
                                                    const std::optional<model::Checkpoint>& draft,
                                                    const model::Model& model,
                                                    EngineConfig& config) {
  if (!draft) {
    return nullptr;
  }
  const EngineConfig own = resolve_options(options_of_draft_model(options), draft->spec());
  note_memory(*draft, own);
  const FixedThreads fixed;  // other threads may load models meanwhile
  model::Weights weights =
      draft->spec().draft_head
          ? model::load_draft_head(*draft, model.weights(), host_format(own), !own.cuda_device)
          : model::load_weights(*draft, host_format(own), !own.cuda_device);
  return place_draft_model({draft->spec(), std::move(weights)}, own, draft->parameter_count(),
                           model.spec(), config);
}

namespace {

// Tells a process of a launcher once that it does not work with the others.
void note_launcher() {
  static std::once_flag told;
  if (const auto launched = parallel::launched_as()) {
    std::call_once(told, [&] {
      note(
          fmt::format("process {} of {} by its launcher: without --tensor-parallel each has the "
                      "whole model to itself",
                      launched->rank, launched->size));
    });
  }
}

model::Model read_model(const LoadOptions& options, const model::Checkpoint& checkpoint,
                        const EngineConfig& config) {
  const FixedThreads fixed;  // other threads may load models meanwhile
  return {checkpoint.spec(),
          model::load_weights(checkpoint, host_format(config), !config.cuda_device, /*shard=*/{},
                              options.on_layer)};
}

}  // namespace

std::unique_ptr<const LoadedModel> load_model(const LoadOptions& options) {
  require(!options.model.empty(), "--model: no model directory was given");
  const model::Checkpoint checkpoint = open_checkpoint(options);
  EngineConfig config = resolve_options(options, checkpoint.spec());
  set_threads(options.threads);
  if (config.ranks > 1) {
    return place_ranks(parts_of(checkpoint, config, load_calibration(options, checkpoint.spec())),
                       config, checkpoint.parameter_count());
  }
  note_launcher();
  const auto draft_checkpoint = open_draft_model(options, checkpoint.spec());
  if (config.cuda_device) {
    require_device(*config.cuda_device);  // before loading weights, which may take minutes
  }
  auto calibration = load_calibration(options, checkpoint.spec());
  note_memory(checkpoint, config);
  model::Model model = read_model(options, checkpoint, config);
  model.calibrate(std::move(calibration));
  auto draft = load_draft_model(options, draft_checkpoint, model, config);
  const FixedThreads fixed;
  return place_model(std::move(model), config, checkpoint.parameter_count(), std::move(draft));
}

std::string model_digest(const LoadOptions& options) {
  std::string digest = checkpoint_digest(options.model);
  if (options.context) {
    digest += fmt::format(" for {} tokens", *options.context);
  }
  if (options.rope_yarn) {
    digest += fmt::format(" with YaRN {}", *options.rope_yarn);
  }
  if (!options.probe.empty()) {
    digest += fmt::format(" with {}", checkpoint_digest(options.probe));
  }
  if (!options.calibration.empty()) {
    digest += fmt::format(" calibrated by {}", checkpoint_digest(options.calibration));
  }
  return options.probe_threshold ? fmt::format("{} below {}", digest, *options.probe_threshold)
                                 : digest;
}

}  // namespace winnow::engine
