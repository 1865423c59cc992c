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

/// What transformers assumes of a family's RoPE where config.json says nothing.
struct RopeDefaults {
  double theta = 10000.0;
  const char* theta_key = "rope_theta";  // beside rope_parameters; null: there is none
  bool partial = false;                  // the family's class knows partial RoPE
  double share = 1.0;                    // of the channels that are rotated, where it does
  bool phi_names = false;                // "su" and "yarn" are longrope
  int original_context = 0;              // before it was extended; 0: max_position_embeddings
  const char* parameters = "{}";         // what stands inside rope_parameters, in JSON
  bool interleaved = false;              // channels 2i and 2i + 1 are a plane
  const char* channels_key = nullptr;    // an older key for the channels that are rotated
  bool mscales = false;      // it may say its attention factors, of short and of long texts
  bool fixed_alpha = false;  // "dynamic" with an "alpha" has one base for all lengths
};

/// What transformers assumes where a family's config.json says nothing.
struct FamilyDefaults {
  int max_positions = 0;
  int head_dim = 0;  // 0: hidden size / heads
  int kv_heads = 0;  // 0: as many as heads, which is also what null means
  const char* activation = "silu";
  NormSpec::Kind norm = NormSpec::Kind::rms;
  bool norm_bias = false;
  const char* norm_eps_key = "rms_norm_eps";
  double norm_eps = 1e-6;
  int intermediate = 0;  // 0: config.json must say it
  RopeDefaults rope = {};
  bool one_rope = true;  // of all layers; else the family reads them
};

/// The key, winnow's own, of the longest text that a RoPE that depends on the length of the text
/// (dynamic, longrope) is set up for.
inline constexpr const char* kContextKey = "winnow_context";

/// The key, winnow's own, of the factor by which YaRN stretches a plain RoPE.
inline constexpr const char* kYarnKey = "winnow_yarn";

/// A decoder of gated SiLU layers with a norm before each part, whose sizes, RoPE, norm epsilon and
/// tied embeddings config.json says under the names that nearly all families share. All layers are
/// alike; the family changes what it does otherwise.
ModelSpec read_decoder(const JsonObject& config, const FamilyDefaults& defaults);

/// A name of a key that all code knows, and the one that a family's files have in its place.
using KeyNames = std::vector<std::pair<const char*, const char*>>;

/// `config` with the keys of its family under the names that read_decoder() knows, too.
nlohmann::json with_keys(const JsonObject& config, const KeyNames& names);

/// For each attention layer.
template <class F>
void for_each_attention(ModelSpec& spec, const F& f) {
  for (LayerSpec& layer : spec.layers) {
    if (auto* attention = std::get_if<AttentionSpec>(&layer.mixer)) {
      f(*attention);
    }
  }
}

/// What set_biases() reads.
struct BiasKeys {
  bool attention = false;  // where config.json does not say
  bool mlp = true;         // the family has the key "mlp_bias"
};

/// "attention_bias": biases of all four projections; "mlp_bias": of the feed-forward's.
void set_biases(const JsonObject& config, ModelSpec& spec, const BiasKeys& keys = {});

/// The activation under `key`; Error for one that winnow does not know.
ops::Activation read_activation(const JsonObject& config, const char* key,
                                const char* absent = "silu");

/// What a RoPE is made for.
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

/// What "rope_scaling" and "rope_parameters", and the keys beside them, say in transformers.
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

/// nullopt when neither file speaks of DMS. `metadata`: dms_metadata.json, nullptr when absent.
std::optional<DmsConfig> read_dms(const JsonObject& config, const JsonObject* metadata,
                                  const NamedRetrofit& named, int head_dim);
std::optional<DmcConfig> read_dmc(const JsonObject& config, const NamedRetrofit& named);

/// True for exactly the convention of shisa-ai's checkpoints.
bool is_shisa_convention(const DmsConfig& dms);

/// The name transformers gives `type`: "float32", "float16" or "bfloat16".
std::string torch_dtype_name(DType type);

}  // namespace winnow::model::detail
