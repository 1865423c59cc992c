// Readers of the config.json keys that families share, and the parts of parse_spec; internal to
// this module.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/json.h"
#include "model/spec.h"

namespace winnow::model::detail {

// Generous for any model of this kind, small enough that products stay in range.
inline constexpr int kMaxHidden = 1 << 20;
inline constexpr int kMaxLayers = 1 << 12;
inline constexpr int kMaxHeads = 1 << 16;
inline constexpr int kMaxHeadDim = 1 << 12;
inline constexpr int kMaxIntermediate = 1 << 24;
inline constexpr int kMaxExperts = 1 << 10;
inline constexpr int kMaxVocab = 1 << 26;
inline constexpr int kMaxPositions = 1 << 30;

/// transformers' defaults for keys of a family's RoPE that config.json lacks.
struct RopeDefaults {
  double theta = 10000.0;
  const char* theta_key = "rope_theta";  // the key outside rope_parameters; null: none
  bool partial = false;                  // the family has partial RoPE
  double share = 1.0;                    // the rotated share of the channels, with partial RoPE
  bool phi_names = false;                // "su" and "yarn" are longrope
  int original_context = 0;              // before extension; 0: max_position_embeddings
  const char* parameters = "{}";         // the content of rope_parameters, in JSON
  bool interleaved = false;              // channels 2i and 2i + 1 form a plane
  const char* channels_key = nullptr;    // an older key for the number of rotated channels
  bool mscales = false;      // keys may give the attention factors of short and long texts
  bool fixed_alpha = false;  // "dynamic" with an "alpha" has one base for all lengths
};

/// transformers' defaults for keys that a family's config.json lacks.
struct FamilyDefaults {
  int max_positions = 0;
  int head_dim = 0;  // 0: hidden size / heads
  int kv_heads = 0;  // 0: as many as heads; null in config.json means the same
  const char* activation = "silu";
  NormSpec::Kind norm = NormSpec::Kind::rms;
  bool norm_bias = false;
  const char* norm_eps_key = "rms_norm_eps";
  double norm_eps = 1e-6;
  int intermediate = 0;  // 0: config.json must have it
  RopeDefaults rope = {};
  bool one_rope = true;  // one for all layers; else the family reads them
};

/// winnow's own key for the longest text that a RoPE that depends on the length of the text
/// (dynamic, longrope) is set up for.
inline constexpr const char* kContextKey = "winnow_context";

/// winnow's own key for the factor by which YaRN stretches a plain RoPE.
inline constexpr const char* kYarnKey = "winnow_yarn";

/// Reads a decoder of gated SiLU layers with a norm before each part. Sizes, RoPE, norm epsilon and
/// tied embeddings come from the keys that nearly all families share. All layers are alike; the
/// family then changes what differs.
ModelSpec read_decoder(const JsonObject& config, const FamilyDefaults& defaults);

/// The common name of a key, and the name that a family's files use for it.
using KeyNames = std::vector<std::pair<const char*, const char*>>;

/// `config` with the family's keys also under the names that read_decoder() reads.
nlohmann::json with_keys(const JsonObject& config, const KeyNames& names);

/// Calls f for each attention layer.
template <class F>
void for_each_attention(ModelSpec& spec, const F& f) {
  for (LayerSpec& layer : spec.layers) {
    if (auto* attention = std::get_if<AttentionSpec>(&layer.mixer)) {
      f(*attention);
    }
  }
}

/// The keys that set_biases() reads, and their defaults.
struct BiasKeys {
  bool attention = false;  // if config.json does not say
  bool mlp = true;         // the family has the key "mlp_bias"
};

/// "attention_bias": biases of all four projections; "mlp_bias": of the feed-forward's.
void set_biases(const JsonObject& config, ModelSpec& spec, const BiasKeys& keys = {});

/// The activation under `key`; Error for one that winnow does not know.
ops::Activation read_activation(const JsonObject& config, const char* key,
                                const char* absent = "silu");

/// The heads and texts that a RoPE is made for.
struct HeadSizes {
  int head_dim = 0;
  int max_positions = 0;
  std::optional<int> context;  // under kContextKey
  std::optional<double> yarn;  // under kYarnKey
};

HeadSizes read_head_sizes(const JsonObject& config, int head_dim, int max_positions);

struct ReadRope {
  RopeSpec rope;
  int positions = 0;  // longest text that it serves
};

/// Reads "rope_scaling", "rope_parameters" and the keys outside them as transformers does.
ReadRope read_rope(const JsonObject& config, const HeadSizes& heads, const RopeDefaults& defaults);

/// For families with a separate RoPE for sliding layers: "rope_parameters" has one per layer type;
/// "rope_scaling" and its neighbouring keys apply to full layers.
struct LayerRopes {
  ReadRope full;
  RopeSpec sliding;
};
LayerRopes read_layer_ropes(const JsonObject& config, const HeadSizes& heads,
                            const RopeDefaults& full, const RopeDefaults& sliding);

/// The compression that the architecture's name implies.
struct NamedRetrofit {
  bool dms = false;  // "Qwen3ForCausalLMDMS": only NVIDIA's code and winnow write this
  bool dmc = false;  // "LlamaForCausalLMDMC": ours
};

/// nullopt if neither file has keys of DMS. `metadata`: dms_metadata.json, nullptr when absent.
std::optional<DmsConfig> read_dms(const JsonObject& config, const JsonObject* metadata,
                                  const NamedRetrofit& named, int head_dim);
std::optional<DmcConfig> read_dmc(const JsonObject& config, const NamedRetrofit& named);

/// True for exactly the convention of shisa-ai's checkpoints.
bool is_shisa_convention(const DmsConfig& dms);

/// The name transformers gives `type`: "float32", "float16" or "bfloat16".
std::string torch_dtype_name(DType type);

}  // namespace winnow::model::detail
