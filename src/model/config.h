// From a model directory's config.json to a ModelSpec, and back.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/spec.h"

namespace winnow::model {

/// A run's settings of a model's RoPE (docs/models.md).
struct RopeOptions {
  /// The longest text, instead of config.json's value.
  std::optional<int> context = {};
  /// YaRN's factor: a plain RoPE is stretched to serve so many times its positions.
  std::optional<double> yarn = {};
};

/// Reads a GGUF file's metadata (gguf_model.h), or from a directory config.json,
/// generation_config.json (optional) and dms_metadata.json (optional; takes precedence over
/// config.json). Throws Error naming file, key and what was expected.
///
/// Sizes are bounded so that no product of two of them overflows an int64 and heads * head_dim fits
/// an int; heads is a multiple of kv_heads, head_dim is even. Missing keys get
/// transformers' defaults, or for DMS those of the file's origin (config_compression.cc).
ModelSpec read_spec(const std::filesystem::path& directory, const RopeOptions& rope = {});

/// The files read_spec reads, as text.
struct ConfigTexts {
  std::filesystem::path directory;  // for messages only
  std::string config;
  std::optional<std::string> generation_config;
  std::optional<std::string> dms_metadata;
  /// Replaces the file's kContextKey and kYarnKey (config_fields.h).
  RopeOptions rope = {};
};

/// read_spec without the file system.
ModelSpec parse_spec(const ConfigTexts& texts);

/// The classes of transformers that "architectures" of a config.json may name.
std::vector<std::string_view> known_architectures();

/// A description of an untrained shape, from a config.json as a model's authors publish it.
ModelSpec parse_spec(const std::string& config);

/// The files to write for `spec`: the config.json that it was made from, with the changes of
/// training and retrofits (DMS, DMC, KV heads, dtype, tokens); parse_spec gives an equal
/// description back. Throws Error if it does not: other changes cannot be saved.
ConfigTexts format_spec(const ModelSpec& spec);

}  // namespace winnow::model
