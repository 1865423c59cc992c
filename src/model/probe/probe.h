// Compression probes that others publish for plain models, each in a directory of its own. A probe
// becomes a DMS adapter of the model (docs/method.md says what that means for each format).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "checkpoint/safetensors.h"
#include "model/spec.h"

namespace winnow::model {

/// Which probe, and where it begins to evict.
struct ProbeOptions {
  std::filesystem::path directory;
  /// Entries whose score is lower are evicted. Unset: the format's default, if it has one.
  std::optional<double> threshold = {};
};

/// An opened probe.
struct Probe {
  DmsConfig dms;
  TensorMap tensors;                  // of the model's adapters, by their names (visit_adapter)
  std::shared_ptr<const void> owner;  // of what these see
};

/// Opens a probe for the model `spec`, which lies at `model`. Throws Error when it is of no known
/// format, or for another model.
Probe open_probe(const ProbeOptions& options, const ModelSpec& spec,
                 const std::filesystem::path& model);

}  // namespace winnow::model
