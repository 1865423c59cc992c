#include "model/probe/probe.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/weight_files.h"
#include "model/probe/probe_formats.h"

namespace winnow::model {
namespace {

constexpr const char* kSidecar = "dms_metadata.json";
constexpr const char* kConfig = "config.json";

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

void require_plain(const ModelSpec& spec, const ProbeOptions& options) {
  require(!spec.dms && !spec.dmc,
          "--probe {}: the model decides by itself; a probe goes with a plain model",
          options.directory.string());
  require(!compresses_behind_layer_norm(spec),
          "--probe {}: probes read an RMSNorm, and layers of the model have a LayerNorm",
          options.directory.string());
}

}  // namespace

bool compresses_behind_layer_norm(const ModelSpec& spec) {
  return std::ranges::any_of(spec.layers, [](const LayerSpec& layer) {
    return layer.compresses() && layer.norm_before && layer.norm.centers();
  });
}

namespace detail {

DmsConfig scored_below(double threshold) {
  DmsConfig dms;
  dms.source = DmsConfig::Source::adapter;
  dms.shift = 0;
  dms.rezero_after_rope = false;
  dms.adapter.own_norm = false;
  dms.scale = -1.0F;
  dms.offset = static_cast<float>(-threshold);
  return dms;
}

double threshold_of(const ProbeOptions& options, double standard) {
  const double threshold = options.threshold.value_or(standard);
  require(std::abs(threshold) <= kMaxScore, "--probe-threshold {}: expected {} to {}", threshold,
          -kMaxScore, kMaxScore);
  return threshold;
}

TensorView ProbeWeights::tensor(const std::string& name, const Shape& shape) const {
  const auto squeezed = [](Shape of) {
    std::erase(of, 1);
    return of;
  };
  TensorView tensor = file_->tensor(name);
  require(squeezed(tensor.shape) == squeezed(shape),
          "{}: tensor {} has shape [{}], expected [{}] as the model has it", where(),
          in_quotes(name), fmt::join(tensor.shape, ", "), fmt::join(shape, ", "));
  tensor.shape = shape;
  return tensor;
}

Probe ProbeWeights::probe(const ModelSpec& spec, const Find& find) const {
  Probe probe{.dms = *spec.dms, .tensors = {}, .owner = file_};
  for (const AdapterTensor& tensor : adapter_tensors(spec)) {
    probe.tensors.emplace(tensor.name, find(tensor));
  }
  require(!probe.tensors.empty(), "{}: no layer of the model compresses", where());
  return probe;
}

}  // namespace detail

Probe open_probe(const ProbeOptions& options, const ModelSpec& spec,
                 const std::filesystem::path& model) {
  const std::filesystem::path& directory = options.directory;
  require_plain(spec, options);
  if (is_there(directory / kSidecar)) {
    return detail::open_sidecar(options, spec, model);
  }
  if (is_there(directory / kConfig)) {
    return detail::open_kvzap(options, spec);
  }
  require(is_there(directory / kWeightFile),
          "--probe {}: no probe; expected {} (hipEngine's sidecar), {} (KVzap) or {} (Fast KVzip)",
          directory.string(), kSidecar, kConfig, kWeightFile);
  return detail::open_fast_kvzip(options, spec);
}

}  // namespace winnow::model
