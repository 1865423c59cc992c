// The readers of probe formats and what they share; internal to this folder.
#pragma once

#include <functional>
#include <string>

#include "checkpoint/safetensors.h"
#include "model/adapter.h"
#include "model/probe/probe.h"

namespace winnow::model::detail {

/// Thresholds may be this large.
inline constexpr double kMaxScore = 1e6;

/// A probe decides about the token that it reads, from what attention reads of it. Evict iff the
/// score is below `threshold`.
DmsConfig scored_below(double threshold);
/// The threshold that was asked for, or `standard`.
double threshold_of(const ProbeOptions& options, double standard);

/// The weights of a probe's directory, from its only safetensors file.
class ProbeWeights {
 public:
  explicit ProbeWeights(const std::filesystem::path& file)
      : file_(std::make_shared<const SafetensorsFile>(file)) {}

  [[nodiscard]] const SafetensorsFile& file() const { return *file_; }
  [[nodiscard]] std::string where() const { return file_->path().string(); }
  /// The tensor `name`, of this shape but for dimensions of 1.
  [[nodiscard]] TensorView tensor(const std::string& name, const Shape& shape) const;

  /// The probe of `spec`, whose `dms` is the probe's: find() gives each tensor.
  using Find = std::function<TensorView(const AdapterTensor& tensor)>;
  [[nodiscard]] Probe probe(const ModelSpec& spec, const Find& find) const;

 private:
  std::shared_ptr<const SafetensorsFile> file_;
};

// One file each.
Probe open_kvzap(const ProbeOptions& options, const ModelSpec& spec);
Probe open_sidecar(const ProbeOptions& options, const ModelSpec& spec,
                   const std::filesystem::path& model);
Probe open_fast_kvzip(const ProbeOptions& options, const ModelSpec& spec);

}  // namespace winnow::model::detail
