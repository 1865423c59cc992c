// What the families' config.json files say alike, key by key, and the parts of parse_spec; nobody
// outside this room needs them.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/json.h"
#include "model/spec.h"

namespace winnow::model::detail {

// Generous for any model of this kind, small enough that products stay in range.
inline constexpr int kMaxHidden = 1 << 20;
inline constexpr int kMaxLayers = 1 << 12;
inline constexpr int kMaxHeads = 1 << 16;
inline constexpr int kMaxHeadDim = 1 << 12;
inline constexpr int kMaxIntermediate = 1 << 24;
inline constexpr int kMaxVocab = 1 << 26;
inline constexpr int kMaxPositions = 1 << 30;

/// What transformers assumes where a family's config.json says nothing.
struct FamilyDefaults {
  int max_positions = 0;
  int head_dim = 0;  // 0: hidden size / heads
  int kv_heads = 0;  // 0: as many as heads, which is also what null means
};

/// A decoder of gated SiLU layers with a norm before each part, whose sizes, RoPE, norm epsilon and
/// tied embeddings config.json says under the names that nearly all families share. All layers are
/// alike; the family changes what it does otherwise.
ModelSpec read_decoder(const JsonObject& config, const FamilyDefaults& defaults);

/// For each attention layer.
template <class F>
void for_each_attention(ModelSpec& spec, const F& f) {
  for (LayerSpec& layer : spec.layers) {
    if (auto* attention = std::get_if<AttentionSpec>(&layer.mixer)) {
      f(*attention);
    }
  }
}

/// The activation under `key`; Error for one that winnow does not know.
ops::Activation read_activation(const JsonObject& config, const char* key);

/// What the "rope_scaling" and "rope_parameters" of transformers say of heads of `head_dim`.
RopeSpec read_rope(const JsonObject& config, int head_dim, int max_positions);

/// What the architecture's name says of how the model compresses.
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
