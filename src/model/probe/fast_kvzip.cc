// Fast KVzip (Kim et al. 2026): a gate per layer, made of small keys and queries.
// Format: the state dictionaries of the authors' files (a list by layer in PyTorch's format), saved
// as safetensors under layers.N.*: q_proj.weight and .bias, k_proj.weight, q_norm.weight,
// k_norm.weight, k_base [KV heads, 1, sinks, width], b [KV heads, 1, group].
#include <array>

#include "base/error.h"
#include "checkpoint/json.h"
#include "checkpoint/weight_files.h"
#include "model/probe/probe_formats.h"

namespace winnow::model::detail {
namespace {

// The authors keep the first 4 tokens and, while generating, a window of 128 or more.
constexpr int kFastKvzipFirst = 4;
constexpr int kFastKvzipWindow = 128;

std::string gate_tensor(const std::string& part) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kNames{
      {{"_query.weight", "q_proj.weight"},
       {"_query.bias", "q_proj.bias"},
       {"_key.weight", "k_proj.weight"},
       {"_query_norm.weight", "q_norm.weight"},
       {"_key_norm.weight", "k_norm.weight"},
       {"_sinks", "k_base"},
       {"_group_bias", "b"}}};
  for (const auto& [ours, theirs] : kNames) {
    if (part == ours) {
      return std::string(theirs);
    }
  }
  fail("a gate has no tensor {}", part);
}

}  // namespace

Probe open_fast_kvzip(const ProbeOptions& options, const ModelSpec& spec) {
  const ProbeWeights weights(options.directory / kWeightFile);
  const std::string first = "layers.0.k_base";
  require(weights.file().holds(first),
          "{}: no probe: tensor {} is missing, which gates of Fast KVzip have", weights.where(),
          in_quotes(first));
  const Shape& sinks = weights.file().tensor(first).shape;
  require(sinks.size() == 4, "{}: tensor {}: expected four dimensions", weights.where(),
          in_quotes(first));
  require(options.threshold.has_value(),
          "--probe {}: gates of Fast KVzip score from 0 to 1 and have no standard threshold; "
          "--probe-threshold is needed",
          options.directory.string());

  ModelSpec probed = spec;
  DmsConfig& dms = probed.dms.emplace(scored_below(threshold_of(options, 0.0)));
  dms.window = kFastKvzipWindow;
  dms.keeps_first = kFastKvzipFirst;
  dms.adapter.kind = AdapterSpec::Kind::gate;
  dms.adapter.sinks = static_cast<int>(sinks[2]);
  dms.adapter.width = static_cast<int>(sinks[3]);
  return weights.probe(probed, [&](const AdapterTensor& tensor) {
    return weights.tensor(fmt::format("layers.{}.{}", tensor.layer, gate_tensor(tensor.part)),
                          tensor.shape);
  });
}

}  // namespace winnow::model::detail
