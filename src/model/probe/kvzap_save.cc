// Writes KVzap's linear probe in the format that kvzap.cc reads.
#include <exception>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/json.h"
#include "checkpoint/json_text.h"
#include "checkpoint/weight_files.h"
#include "model/probe/probe_formats.h"

namespace winnow::model {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProbeConfig = "config.json";
constexpr const char* kTrainingFolder = "training";

bool is_kvzap_config(const fs::path& file) {
  try {
    return parse_json(read_text_file(file), file.string()).value("model_type", "") == "kvzap";
  } catch (const std::exception&) {  // not even JSON
    return false;
  }
}

bool may_be_replaced(const fs::path& file, bool beside_probe) {
  const std::string name = file.filename().string();
  return name == kTrainingFolder || (beside_probe && (name == kProbeConfig || name == kWeightFile));
}

// Zeros where a layer has no scorer: its entries leave its reach anyhow.
LinearScorer filled(const ModelSpec& spec, LinearScorer scorer) {
  const auto heads = static_cast<std::size_t>(spec.attention().kv_heads);
  scorer.weight.resize(heads * static_cast<std::size_t>(spec.hidden));
  scorer.bias.resize(heads);
  return scorer;
}

}  // namespace

void require_kvzap_place(const fs::path& directory) {
  std::error_code error;
  if (!fs::exists(directory, error)) {
    return;
  }
  require(fs::is_directory(directory, error), "{}: is no folder", directory.string());
  const bool holds_probe = is_kvzap_config(directory / kProbeConfig);
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    require(may_be_replaced(entry.path(), holds_probe),
            "{}: holds something other than a KVzap probe: name another folder",
            directory.string());
  }
  require(!error, "{}: cannot read: {}", directory.string(), error.message());
}

void save_kvzap(const fs::path& directory, const ModelSpec& spec,
                std::span<const LinearScorer> layers, double threshold) {
  std::error_code error;
  fs::create_directories(directory, error);
  require(!error, "{}: cannot create: {}", directory.string(), error.message());
  const std::int64_t heads = spec.attention().kv_heads;
  std::vector<LinearScorer> scorers;
  for (const LinearScorer& layer : layers) {
    scorers.push_back(filled(spec, layer));
  }
  TensorMap tensors;
  for (std::size_t i = 0; i < scorers.size(); ++i) {
    tensors[fmt::format("layers.{}.weight", i)] = {
        DType::f32, {heads, spec.hidden}, std::as_bytes(std::span(scorers[i].weight)).data()};
    tensors[fmt::format("layers.{}.bias", i)] = {
        DType::f32, {heads}, std::as_bytes(std::span(scorers[i].bias)).data()};
  }
  write_safetensors(directory / kWeightFile, tensors, {{"format", "pt"}});
  const nlohmann::ordered_json config = {{"architectures", {"KVzapModel"}},
                                         {"model_type", "kvzap"},
                                         {"dtype", "float32"},
                                         {"input_dim", spec.hidden},
                                         {"hidden_dim", nullptr},
                                         {"output_dim", heads},
                                         {"n_modules", spec.layer_count()},
                                         {detail::kKvzapThresholdKey, threshold}};
  write_text_file(directory / kProbeConfig, json_text(config, 2) + "\n");
}

}  // namespace winnow::model
