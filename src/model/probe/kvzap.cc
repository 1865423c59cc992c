// KVzap (NVIDIA 2026): per layer a linear or two-layer scorer of the attention input.
// Format: NVIDIA's kvpress, KVzapModel: config.json with model_type "kvzap", input_dim, output_dim,
// n_modules and hidden_dim (null: linear); winnow adds threshold; layers.N.weight, or layers.N.0.*
// and layers.N.2.*.
#include "base/error.h"
#include "checkpoint/json.h"
#include "checkpoint/weight_files.h"
#include "model/probe/probe_formats.h"

namespace winnow::model::detail {
namespace {

// The values in kvpress's documentation, and DMSPress's default.
constexpr double kKvzapThreshold = -4.0;
constexpr int kKvzapWindow = 128;
constexpr int kWidest = 1 << 20;

void require_size(const JsonObject& config, const char* key, int of_model, const char* what) {
  const int size = config.integer(key, 1, kWidest);
  require(size == of_model, "{}: {} is {}, but the model has {} {}", config.where(), key, size,
          of_model, what);
}

}  // namespace

Probe open_kvzap(const ProbeOptions& options, const ModelSpec& spec) {
  const std::filesystem::path file = options.directory / "config.json";
  const nlohmann::json document = parse_json(read_text_file(file), file.string());
  const JsonObject config(document, file.string());
  require(config.text("model_type", "") == "kvzap",
          "{}: no probe: model_type is {}, expected \"kvzap\"", file.string(),
          in_quotes(config.text("model_type", "")));
  require_size(config, "input_dim", spec.hidden, "channels");
  require_size(config, "output_dim", spec.attention().kv_heads, "KV heads");
  require_size(config, "n_modules", spec.layer_count(), "layers");

  const double threshold =
      config.number(kKvzapThresholdKey, -kMaxScore, kMaxScore, kKvzapThreshold);
  ModelSpec probed = spec;
  DmsConfig& dms = probed.dms.emplace(scored_below(threshold_of(options, threshold)));
  dms.window = kKvzapWindow;
  if (config.has("hidden_dim")) {
    dms.adapter.kind = AdapterSpec::Kind::mlp;
    dms.adapter.width = config.integer("hidden_dim", 1, kWidest);
  }
  const bool deep = dms.adapter.kind == AdapterSpec::Kind::mlp;
  const ProbeWeights weights(options.directory / kWeightFile);
  return weights.probe(probed, [&](const AdapterTensor& tensor) {
    const bool inner = tensor.part.starts_with("_inner");
    const std::string end = tensor.part.substr(tensor.part.find('.'));
    const char* const place = !deep ? "" : inner ? ".0" : ".2";
    return weights.tensor(fmt::format("layers.{}{}{}", tensor.layer, place, end), tensor.shape);
  });
}

}  // namespace winnow::model::detail
