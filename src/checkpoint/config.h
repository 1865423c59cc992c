// What a checkpoint says about its model: architecture, and how it was taught to compress.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace winnow {

enum class Family : std::uint8_t { llama, qwen2, qwen3, mistral };

struct RopeConfig {
  enum class Scaling : std::uint8_t { none, linear, llama3 };

  double theta = 10000.0;
  Scaling scaling = Scaling::none;
  double factor = 1.0;  // linear, llama3
  // llama3 only: wavelengths beyond original_context / low_freq_factor are stretched by `factor`,
  // those below original_context / high_freq_factor are kept, those between are blended.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int original_context = 8192;

  bool operator==(const RopeConfig&) const = default;
};

/// How a DMS model decides what to evict.
struct DmsConfig {
  enum class Source : std::uint8_t {
    borrowed,  // one channel of the group's first query head, after q_norm and before RoPE
    adapter,   // a linear probe of the layer's input
  };

  int window = 512;      // w: a marked key is visible for w more steps
  float scale = 100.0F;  // logit = scale * x - offset
  float offset = 5.0F;
  Source source = Source::adapter;
  bool per_layer = false;         // KV head 0 decides for all heads of its layer
  int shift = 1;                  // the decision read at token t concerns key t - shift; <= w + 1
  int channel = -1;               // borrowed: index in the head, -1 = last
  bool rezero_after_rope = true;  // borrowed: clear the channel again after RoPE
  bool evict = true;              // false: dms_disable_eviction, decisions are read and ignored
  double target_cr = 0.0;         // what it was trained for; 0 = not said

  bool operator==(const DmsConfig&) const = default;
};

/// A DMC model: alpha = 1 (merge) iff k[0] - offset > 0, omega = sigmoid(q[0]).
struct DmcConfig {
  float offset = 5.0F;
  bool per_layer = false;    // KV head 0 decides and weighs for all heads of its layer
  std::uint16_t pooled = 0;  // > 0: nothing decides, every so many tokens make an entry
  double target_cr = 0.0;    // what it was trained for; 0 = not said

  bool operator==(const DmcConfig&) const = default;
};

struct ModelConfig {
  Family family = Family::llama;
  int hidden = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int intermediate = 0;
  int vocab = 0;
  int max_positions = 0;
  float norm_eps = 1e-5F;
  RopeConfig rope;
  bool tied_embeddings = false;
  bool qkv_bias = false;     // Qwen2; attention_bias of Llama and Qwen3
  bool output_bias = false;  // attention_bias of Llama and Qwen3
  bool mlp_bias = false;     // Llama
  bool qk_norm = false;      // Qwen3: RMSNorm of each query and key head before RoPE
  DType dtype = DType::bf16;
  std::optional<int> bos_token;
  std::vector<int> eos_tokens;  // from generation_config.json, else config.json
  std::optional<DmsConfig> dms;
  std::optional<DmcConfig> dmc;

  [[nodiscard]] int group() const { return heads / kv_heads; }
  bool operator==(const ModelConfig&) const = default;
};

/// Reads config.json, generation_config.json (optional) and dms_metadata.json (optional; its values
/// win over config.json's). Throws Error naming file, key and what was expected.
///
/// Sizes are bounded so that no product of two of them overflows an int64 and heads * head_dim fits
/// an int; heads is a multiple of kv_heads, head_dim is even. What the files leave out gets
/// transformers' default, or for DMS the convention of the file's origin (config_dms.cc).
ModelConfig read_config(const std::filesystem::path& directory);

/// The files read_config reads, as text.
struct ConfigTexts {
  std::filesystem::path directory;  // for messages only
  std::string config;
  std::optional<std::string> generation_config;
  std::optional<std::string> dms_metadata;
};

/// read_config without the file system.
ModelConfig parse_config(const ConfigTexts& texts);

/// The files to write for `config`; parse_config gives an equal configuration back. Throws Error
/// when the configuration is not one that parse_config can return (a bad size, DMS and DMC ...).
ConfigTexts format_config(const ModelConfig& config);

}  // namespace winnow
