// Compression probes that others publish for plain models, each in its own directory. A probe
// becomes a DMS adapter of the model (docs/method.md has the mapping of each format).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "checkpoint/safetensors.h"
#include "model/spec.h"

namespace winnow::model {

/// A probe's directory and its eviction threshold.
struct ProbeOptions {
  std::filesystem::path directory;
  /// Entries with lower scores are evicted. Unset: the format's default, if it has one.
  std::optional<double> threshold = {};
};

/// An opened probe.
struct Probe {
  DmsConfig dms;
  TensorMap tensors;                  // of the model's adapters, by name (visit_adapter)
  std::shared_ptr<const void> owner;  // of the memory that `tensors` points to
};

/// Opens a probe for the model `spec`, whose file or directory is `model`. Throws Error if its
/// format is unknown, or it is for another model.
Probe open_probe(const ProbeOptions& options, const ModelSpec& spec,
                 const std::filesystem::path& model);

}  // namespace winnow::model
