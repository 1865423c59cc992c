// The readers of probe formats and their common parts; internal to this folder.
#pragma once

#include <functional>
#include <string>

#include "checkpoint/safetensors.h"
#include "model/adapter.h"
#include "model/probe/probe.h"

namespace winnow::model::detail {

/// The largest threshold that is accepted.
inline constexpr double kMaxScore = 1e6;

/// The key of winnow's in KVzap's config.json: a probe's own threshold.
inline constexpr const char* kKvzapThresholdKey = "threshold";

/// A probe decides about the current token, from the attention input. It evicts if the score is
/// below `threshold`.
DmsConfig scored_below(double threshold);
/// The threshold of `options`, or `standard` if there is none.
double threshold_of(const ProbeOptions& options, double standard);

/// The weights of a probe's directory, from its only safetensors file.
class ProbeWeights {
 public:
  explicit ProbeWeights(const std::filesystem::path& file)
      : file_(std::make_shared<const SafetensorsFile>(file)) {}

  [[nodiscard]] const SafetensorsFile& file() const { return *file_; }
  [[nodiscard]] std::string where() const { return file_->path().string(); }
  /// The tensor `name`. Its shape must be `shape`, apart from dimensions of 1.
  [[nodiscard]] TensorView tensor(const std::string& name, const Shape& shape) const;

  /// Makes a probe for `spec`, whose `dms` is already the probe's; find() returns each tensor.
  using Find = std::function<TensorView(const AdapterTensor& tensor)>;
  [[nodiscard]] Probe probe(const ModelSpec& spec, const Find& find) const;

 private:
  std::shared_ptr<const SafetensorsFile> file_;
};

// One source file each.
Probe open_kvzap(const ProbeOptions& options, const ModelSpec& spec);
Probe open_sidecar(const ProbeOptions& options, const ModelSpec& spec,
                   const std::filesystem::path& model);
Probe open_fast_kvzip(const ProbeOptions& options, const ModelSpec& spec);

}  // namespace winnow::model::detail
