// Compression probes for plain models, each in its own directory: those that others publish, and
// KVzap's linear one, which `winnow train-probe` writes. A probe becomes a DMS adapter of the model
// (docs/method.md has the mapping of each format).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

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

/// Whether a layer that compresses reads its input through a LayerNorm. Probes read an RMSNorm.
bool compresses_behind_layer_norm(const ModelSpec& spec);

/// Opens a probe for the model `spec`, whose file or directory is `model`. Throws Error if its
/// format is unknown, or it is for another model.
Probe open_probe(const ProbeOptions& options, const ModelSpec& spec,
                 const std::filesystem::path& model);

/// A layer's part of a linear probe: scores = weight x + bias.
struct LinearScorer {
  std::vector<float> weight;  // [kv_heads, hidden]
  std::vector<float> bias;    // [kv_heads]
};

/// Throws Error unless a KVzap probe may be written to `directory`: it is missing, or holds nothing
/// but another KVzap probe or its training data.
void require_kvzap_place(const std::filesystem::path& directory);
/// Writes KVzap's linear probe for the model `spec`, one scorer per layer, with the `threshold`
/// that it is opened with by default. An empty scorer, of a layer that does not compress, is
/// written as zeros.
void save_kvzap(const std::filesystem::path& directory, const ModelSpec& spec,
                std::span<const LinearScorer> layers, double threshold);

}  // namespace winnow::model
