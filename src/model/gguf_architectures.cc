#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <vector>

#include "checkpoint/gguf/block_formats.h"
#include "model/gguf_metadata.h"
#include "model/gguf_model.h"

namespace winnow::model::detail {
namespace {

/// The values of a vector.
std::vector<float> read_floats(const gguf::File& file, const std::string& name) {
  const gguf::Tensor& tensor = need_tensor(file, name);
  require(tensor.type == gguf::kF32, "{}: {}: expected F32", file.path().string(), name);
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(float));
  return values;
}

// The architectures' own keys. Keys that llama.cpp's converter leaves out are constants in its
// code; the comments name them.

void put_experts(const Metadata& metadata, json& config, const char* count) {
  config[count] = metadata.need("expert_count");
  config["num_experts_per_tok"] = metadata.need("expert_used_count");
}

/// Mixtral's files name Llama's architecture.
void add_llama(const Metadata& metadata, json& config) {
  if (metadata.find("expert_count") != nullptr && metadata.number("expert_count") > 0) {
    config["model_type"] = "mixtral";
    put_experts(metadata, config, "num_local_experts");
  }
}

/// llama.cpp normalises the weights of Qwen 3's chosen experts, but not of Qwen 2's.
void add_qwen_experts(const Metadata& metadata, json& config) {
  put_experts(metadata, config, "num_experts");
  config["norm_topk_prob"] = metadata.architecture() != "qwen2moe";
  config["moe_intermediate_size"] =
      metadata.get("expert_feed_forward_length", config["intermediate_size"]);
  metadata.copy("expert_shared_feed_forward_length", config, "shared_expert_intermediate_size");
}

/// The 27B models, which llama.cpp recognises by their number of layers, divide scores by the
/// square root of a width that is not the heads'.
void add_gemma_scale(const Metadata& metadata, json& config, int layers_of_27b) {
  const bool is_27b = metadata.number("block_count") == layers_of_27b;
  config["query_pre_attn_scalar"] =
      is_27b ? metadata.number("embedding_length") / metadata.number("attention.head_count")
             : metadata.number("attention.key_length");
}

void add_gemma2(const Metadata& metadata, json& config) {
  add_gemma_scale(metadata, config, 46);
  metadata.copy("attn_logit_softcapping", config, "attn_logit_softcapping");
  metadata.copy("final_logit_softcapping", config, "final_logit_softcapping");
  metadata.copy("attention.sliding_window", config, "sliding_window");
}

/// Every sixth layer is a full one, the others have a base of 10,000.
void add_gemma3(const Metadata& metadata, json& config) {
  add_gemma_scale(metadata, config, 62);
  metadata.copy("final_logit_softcapping", config, "final_logit_softcapping");
  config["sliding_window"] = metadata.get("attention.sliding_window", nullptr);
  config["sliding_window_pattern"] = config["sliding_window"].is_null()
                                         ? json(1)
                                         : metadata.get("attention.sliding_window_pattern", 6);
  config["rope_local_base_freq"] = metadata.get("rope.freq_base_swa", 10000.0);
}

void add_granite(const Metadata& metadata, json& config) {
  metadata.copy("embedding_scale", config, "embedding_multiplier");
  metadata.copy("residual_scale", config, "residual_multiplier");
  metadata.copy("logit_scale", config, "logits_scaling");
  config["attention_multiplier"] =
      metadata.get("attention.scale", 1.0 / std::sqrt(config["head_dim"].get<double>()));
}

/// The pattern is true for sliding layers.
void put_sliding_layers(const Metadata& metadata, json& config) {
  if (const json* pattern = metadata.find("attention.sliding_window_pattern")) {
    json types = json::array();
    for (const json& slides : pattern->is_array() ? *pattern : json::array()) {
      types.push_back(slides == true ? "sliding_attention" : "full_attention");
    }
    config["layer_types"] = types;
  }
}

/// OLMo 3 is OLMo 2 with a window.
void add_olmo2(const Metadata& metadata, json& config) {
  const json window = metadata.get("attention.sliding_window", 0);
  if (window != 0) {
    config["model_type"] = "olmo3";
    config["sliding_window"] = window;
    put_sliding_layers(metadata, config);
  }
}

/// In the model of 64 layers three of four layers slide; llama.cpp gives other models no window.
void add_exaone4(const Metadata& metadata, json& config) {
  config["sliding_window"] = nullptr;
  if (metadata.number("block_count") == 64) {
    config["sliding_window"] = metadata.get("attention.sliding_window", 4096);
    put_sliding_layers(metadata, config);
  }
}

/// Ministral 3; without experts and growing queries Mistral Small 3, which is a Llama. llama.cpp
/// assumes that mscale is 1.
void add_mistral3(const Metadata& metadata, json& config) {
  require(metadata.get("expert_count", 0) == 0, "{}: mistral3 with experts is not supported",
          metadata.file().path().string());
  if (metadata.find("attention.temperature_scale") == nullptr) {
    config["model_type"] = "llama";
    return;
  }
  require(config["rope_scaling"].is_object(), "{}: mistral3.rope.scaling.type is missing",
          metadata.file().path().string());
  json rope = config["rope_scaling"];
  rope["rope_theta"] = config["rope_theta"];
  rope["llama_4_scaling_beta"] = metadata.need("attention.temperature_scale");
  rope["mscale"] = 1.0;
  rope["mscale_all_dim"] = metadata.get("rope.scaling.yarn_log_multiplier", 0.0);
  config["rope_parameters"] = rope;
  config.erase("rope_scaling");
  config.erase("rope_theta");
}

/// The share of a head's channels that is rotated.
void put_rotated_share(const Metadata& metadata, json& config) {
  if (metadata.find("rope.dimension_count") != nullptr) {
    // Slightly more, because the share times the head's channels is rounded down.
    config["partial_rotary_factor"] = std::min(
        1.0, (metadata.number("rope.dimension_count") + 1e-6) / config["head_dim"].get<double>());
  }
}

/// The last layers predict several tokens at once; winnow does not read them.
void add_qwen_hybrid(const Metadata& metadata, json& config) {
  config["num_hidden_layers"] =
      static_cast<int>(metadata.number("block_count")) - predicting_layers(metadata.file());
  put_rotated_share(metadata, config);
  config["full_attention_interval"] = metadata.get("full_attention_interval", 4);
  config["linear_conv_kernel_dim"] = metadata.need("ssm.conv_kernel");
  config["linear_num_key_heads"] = metadata.need("ssm.group_count");
  config["linear_key_head_dim"] = metadata.need("ssm.state_size");
  const double heads = metadata.number("ssm.time_step_rank");
  const double width = metadata.number("ssm.inner_size");
  require(heads > 0 && std::fmod(width, heads) == 0.0,
          "{}: {}.ssm.inner_size: expected a multiple of ssm.time_step_rank, got {} and {}",
          metadata.file().path().string(), metadata.architecture(), width, heads);
  config["linear_num_value_heads"] = metadata.need("ssm.time_step_rank");
  config["linear_value_head_dim"] = static_cast<std::int64_t>(width / heads);
}

void add_qwen_hybrid_experts(const Metadata& metadata, json& config) {
  add_qwen_experts(metadata, config);
  add_qwen_hybrid(metadata, config);
}

void add_gpt_oss(const Metadata& metadata, json& config) {
  put_experts(metadata, config, "num_local_experts");
  metadata.copy("expert_feed_forward_length", config, "intermediate_size");
  metadata.copy("attention.sliding_window", config, "sliding_window");
  if (config["rope_scaling"].is_object()) {
    config["rope_scaling"]["truncate"] = false;
  }
}

/// A window of 0 means none. Not all channels of a head are rotated.
void add_phi3(const Metadata& metadata, json& config) {
  const json window = metadata.get("attention.sliding_window", 0);
  config["sliding_window"] = window == 0 ? json(nullptr) : window;
  put_rotated_share(metadata, config);
  metadata.copy("rope.scaling.original_context_length", config, "original_max_position_embeddings");
  if (metadata.file().tensors().contains("rope_factors_long.weight")) {
    config["rope_scaling"] = {
        {"rope_type", "longrope"},
        {"long_factor", read_floats(metadata.file(), "rope_factors_long.weight")},
        {"short_factor", read_floats(metadata.file(), "rope_factors_short.weight")}};
  }
}

constexpr std::array<GgufArchitecture, 23> kArchitectures{{
    {"arcee", "arcee"},
    {"exaone4", "exaone4", add_exaone4},
    {"gemma", "gemma"},
    {"gemma2", "gemma2", add_gemma2},
    {"gemma3", "gemma3_text", add_gemma3},
    {"gpt-oss", "gpt_oss", add_gpt_oss},
    {"granite", "granite", add_granite},
    {"llama", "llama", add_llama},
    {"mistral3", "ministral3", add_mistral3},
    {"olmo2", "olmo2", add_olmo2},
    {"phi3", "phi3", add_phi3},
    {"qwen2", "qwen2"},
    {"qwen2moe", "qwen2_moe", add_qwen_experts},
    {"qwen2vl", "qwen2"},
    {"qwen3", "qwen3"},
    {"qwen35", "qwen3_5_text", add_qwen_hybrid},
    {"qwen35moe", "qwen3_5_moe_text", add_qwen_hybrid_experts},
    {"qwen3moe", "qwen3_moe", add_qwen_experts},
    // Qwen3-Next has the layers of Qwen 3.5, whose projections are separate as they are here.
    {"qwen3next", "qwen3_5_moe_text", add_qwen_hybrid_experts},
    {"qwen3vl", "qwen3"},
    {"qwen3vlmoe", "qwen3_moe", add_qwen_experts},
    {"seed_oss", "seed_oss"},
    {"smollm3", "smollm3"},
}};

}  // namespace

const GgufArchitecture* find_gguf_architecture(std::string_view name) {
  const auto* const found = std::ranges::find(kArchitectures, name, &GgufArchitecture::name);
  return found == kArchitectures.end() ? nullptr : found;
}

}  // namespace winnow::model::detail

namespace winnow::model {

std::vector<std::string_view> known_gguf_architectures() {
  std::vector<std::string_view> names;
  std::ranges::transform(detail::kArchitectures, std::back_inserter(names),
                         &detail::GgufArchitecture::name);
  return names;
}

}  // namespace winnow::model
