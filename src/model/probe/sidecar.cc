// The sidecar of shisa-ai's hipEngine: a linear probe for each layer and KV head of one model,
// whose file it names by SHA-256.
// Format: dms_metadata.json with schema_version 2 (load_dms_retrofit_config) and the safetensors
// file under its key "sidecar": a weight [layers, KV heads, hidden] and a bias [layers, KV heads]
// in bf16, for the layers in "physical_layer_ids".
#include <algorithm>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/note.h"
#include "base/sha256.h"
#include "checkpoint/json.h"
#include "model/probe/probe_formats.h"

namespace winnow::model::detail {
namespace {

constexpr const char* kSource = "external_linear_sidecar_v1";
constexpr const char* kStage = "post_attn_rmsnorm_pre_q_projection";
constexpr int kLargest = 1 << 30;

std::string sha256_of(const std::filesystem::path& path) {
  const MappedFile file(path);
  Sha256 hash;
  hash.update(file.bytes());
  return hash.finish();
}

void require_text(const JsonObject& metadata, const char* key, const char* expected) {
  const std::string text = metadata.text(key, expected);
  require(text == expected, "{}: {} is {}, expected {}", metadata.where(), key, in_quotes(text),
          in_quotes(expected));
}

void require_number(const JsonObject& metadata, const char* key, int of_model) {
  const int number = metadata.integer(key, 0, kLargest);
  require(number == of_model, "{}: {} is {}, but the model has {}", metadata.where(), key, number,
          of_model);
}

/// The layers of the probe ("physical_layer_ids"), which must be all that the model compresses.
std::vector<int> read_layers(const JsonObject& metadata, const ModelSpec& spec) {
  const nlohmann::json* ids = metadata.find("physical_layer_ids");
  if (ids == nullptr || !ids->is_array() ||
      !std::ranges::all_of(*ids, [](const auto& id) { return id.is_number_integer(); })) {
    metadata.reject("physical_layer_ids", "an array of layers");
  }
  std::vector<int> layers;
  for (int layer = 0; layer < spec.layer_count(); ++layer) {
    if (spec.layer(layer).compresses()) {
      layers.push_back(layer);
    }
  }
  require(*ids == nlohmann::json(layers),
          "{}: physical_layer_ids is [{}], but the model compresses in layers [{}]",
          metadata.where(), fmt::join(ids->get<std::vector<std::int64_t>>(), ", "),
          fmt::join(layers, ", "));
  return layers;
}

/// If the model is one file, its SHA-256 must be the probe's fingerprint.
void check_fingerprint(const JsonObject& metadata, const std::filesystem::path& model) {
  std::error_code ignored;
  const std::string expected = metadata.text("artifact_fingerprint", "");
  if (std::filesystem::is_regular_file(model, ignored)) {
    const std::string found = sha256_of(model);
    require(found == expected,
            "{}: artifact_fingerprint: the probe is for the file {}, not {} ({})", metadata.where(),
            in_quotes(expected), model.string(), found);
  } else {
    note(
        fmt::format("{}: artifact_fingerprint names a model's file; {} is a directory, so it is "
                    "not checked",
                    metadata.where(), model.string()));
  }
}

std::filesystem::path sidecar_file(const JsonObject& sidecar,
                                   const std::filesystem::path& directory) {
  require_text(sidecar, "format", "safetensors");
  const std::filesystem::path name = sidecar.text("path", "");
  require(!name.empty() && name.is_relative() && std::ranges::find(name, "..") == name.end(),
          "{}: path: expected a file of the same directory, got {}", sidecar.where(),
          in_quotes(name.string()));
  const std::filesystem::path file = directory / name;
  const std::string expected = sidecar.text("sha256", "");
  const std::string found = sha256_of(file);
  require(found == expected, "{}: its SHA-256 is {}, but {} expects {}", file.string(), found,
          sidecar.where(), in_quotes(expected));
  return file;
}

}  // namespace

Probe open_sidecar(const ProbeOptions& options, const ModelSpec& spec,
                   const std::filesystem::path& model) {
  const std::filesystem::path file = options.directory / "dms_metadata.json";
  const nlohmann::json document = parse_json(read_text_file(file), file.string());
  const JsonObject whole(document, file.string());
  const JsonObject metadata = whole.has("dms")      ? whole.object("dms")
                              : whole.has("config") ? whole.object("config")
                                                    : whole;
  const JsonObject& versioned = whole.has("schema_version") ? whole : metadata;
  const int version = versioned.integer("schema_version", 0, kLargest, 1);
  require(version == 2, "{}: schema_version {} is no probe, expected 2", file.string(), version);
  require(!options.threshold, "--probe-threshold {}: {} has a threshold of its own",
          options.threshold.value_or(0.0), file.string());
  require_text(metadata, "decision_source", kSource);
  require_text(metadata, "input_stage", kStage);
  require_number(metadata, "num_q_heads", spec.attention().heads);
  require_number(metadata, "head_dim", spec.attention().head_dim);
  require_number(metadata, "num_kv_heads", spec.attention().kv_heads);
  require_number(metadata, "hidden_size", spec.hidden);
  const std::vector<int> layers = read_layers(metadata, spec);
  require_number(metadata, "num_layers", static_cast<int>(layers.size()));
  check_fingerprint(metadata, model);
  if (metadata.text("prefill_selection_mode", "threshold") != "threshold") {
    note(fmt::format("{}: prefill_selection_mode {}: winnow applies alpha_offset to prompts too",
                     file.string(), metadata.text("prefill_selection_mode", "")));
  }

  ModelSpec probed = spec;
  DmsConfig& dms = probed.dms.emplace(scored_below(0.0));
  dms.scale = static_cast<float>(metadata.number("alpha_scale", -kMaxScore, kMaxScore));
  dms.offset = static_cast<float>(metadata.number("alpha_offset", -kMaxScore, kMaxScore));
  dms.window = metadata.integer("window_size", 0, kLargest);
  dms.target_cr = metadata.number("target_compression_ratio", 0.0, kMaxScore, 0.0);

  const JsonObject sidecar = metadata.object("sidecar");
  const ProbeWeights weights(sidecar_file(sidecar, options.directory));
  const std::string weight = sidecar.text("weight_tensor", "weight");
  const std::string bias = sidecar.text("bias_tensor", "bias");
  return weights.probe(probed, [&](const AdapterTensor& tensor) {
    // The tensors of all layers are stacked.
    const auto count = static_cast<std::int64_t>(layers.size());
    const auto place = std::ranges::lower_bound(layers, tensor.layer) - layers.begin();
    Shape stacked = tensor.shape;
    stacked.insert(stacked.begin(), count);
    TensorView view = weights.tensor(tensor.part == ".bias" ? bias : weight, stacked);
    view.data += view.bytes() / layers.size() * static_cast<std::size_t>(place);
    view.shape = tensor.shape;
    return view;
  });
}

}  // namespace winnow::model::detail
