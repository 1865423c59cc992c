#include "apps/winnow/run_settings.h"

#include "checkpoint/digest.h"

namespace winnow::cli {
namespace {

using Json = nlohmann::ordered_json;

Json describe_cache(const engine::LoadedModel& model) {
  const kvcache::CacheConfig& cache = model.engine.cache;
  Json json{{"rule", kvcache::rule_name(cache.rule)}, {"kv_dtype", ops::format_name(cache.format)}};
  if (cache.traits().marks) {
    json["window"] = cache.window;
    json["decision_shift"] = cache.shift;
  }
  if (cache.cr != 1.0) {
    json["target_cr"] = cache.cr;
  }
  return json;
}

}  // namespace

Json describe_model(const std::string& directory, const engine::LoadedModel& model) {
  return {{"path", directory},
          {"sha256", checkpoint_digest(directory)},
          {"family", model.spec().family},
          {"parameters", model.parameters}};
}

Json describe_run(const LoadOptions& load, const engine::LoadedModel& model) {
  Json json{{"model", describe_model(load.model, model)},
            {"cache", describe_cache(model)},
            {"dtype", load.dtype},
            {"weights", load.weights},
            {"device", load.device},
            // Chunk, batch and threads change only rounding. With this flag, results must not
            // depend on rounding either.
            {"deterministic", load.deterministic}};
  if (load.rope_yarn) {
    json["rope_yarn"] = *load.rope_yarn;
  }
  if (!load.probe.empty()) {
    json["probe"] = {{"path", load.probe}, {"sha256", checkpoint_digest(load.probe)}};
    if (load.probe_threshold) {
      json["probe"]["threshold"] = *load.probe_threshold;
    }
  }
  if (const std::string& file = load.calibration; !file.empty()) {
    json["calibration"] = {{"path", file}, {"sha256", checkpoint_digest(file)}};
  }
  return json;
}

}  // namespace winnow::cli
