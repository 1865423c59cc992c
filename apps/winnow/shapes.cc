#include "apps/winnow/shapes.h"

#include <algorithm>
#include <array>
#include <string>

#include "model/config.h"

namespace winnow::cli {
namespace {

struct Shape {
  std::string_view name;
  const char* config;  // the part of the model's config.json that a description needs
};

constexpr auto kShapes = std::to_array<Shape>({
    // HuggingFaceTB/SmolLM2-135M
    {"smollm2-135m", R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 576,
      "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
      "intermediate_size": 1536, "vocab_size": 49152, "max_position_embeddings": 8192,
      "rms_norm_eps": 1e-5, "rope_theta": 100000, "tie_word_embeddings": true})"},
    // meta-llama/Llama-2-7b-hf
    {"llama-2-7b", R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
      "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 11008,
      "vocab_size": 32000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5})"},
    // meta-llama/Llama-2-13b-hf
    {"llama-2-13b", R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 5120,
      "num_hidden_layers": 40, "num_attention_heads": 40, "intermediate_size": 13824,
      "vocab_size": 32000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5})"},
    // meta-llama/Llama-3.2-1B
    {"llama-3.2-1b", R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 2048,
      "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
      "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-5, "rope_theta": 500000,
      "rope_scaling": {"rope_type": "llama3", "factor": 32, "low_freq_factor": 1,
        "high_freq_factor": 4, "original_max_position_embeddings": 8192},
      "tie_word_embeddings": true})"},
    // meta-llama/Llama-3.1-8B, -70B
    {"llama-3.1-8b", R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
      "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-5, "rope_theta": 500000,
      "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
        "high_freq_factor": 4, "original_max_position_embeddings": 8192}})"},
    {"llama-3.1-70b", R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8192,
      "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
      "intermediate_size": 28672, "vocab_size": 128256, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-5, "rope_theta": 500000,
      "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
        "high_freq_factor": 4, "original_max_position_embeddings": 8192}})"},
    // meta-llama/Llama-2-70b-hf
    {"llama-2-70b", R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8192,
      "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
      "intermediate_size": 28672, "vocab_size": 32000, "max_position_embeddings": 4096,
      "rms_norm_eps": 1e-5})"},
    // Qwen/Qwen3-0.6B, -1.7B, -4B, -8B, -32B
    {"qwen3-0.6b", R"({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024,
      "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
      "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936,
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
      "tie_word_embeddings": true})"},
    {"qwen3-1.7b", R"({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 2048,
      "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
      "head_dim": 128, "intermediate_size": 6144, "vocab_size": 151936,
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
      "tie_word_embeddings": true})"},
    {"qwen3-4b", R"({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 2560,
      "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
      "head_dim": 128, "intermediate_size": 9728, "vocab_size": 151936,
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
      "tie_word_embeddings": true})"},
    {"qwen3-8b", R"({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096,
      "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
      "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936,
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000})"},
    {"qwen3-32b", R"({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 5120,
      "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8,
      "head_dim": 128, "intermediate_size": 25600, "vocab_size": 151936,
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000})"},
    // Qwen/Qwen3-30B-A3B
    {"qwen3-30b-a3b", R"({"architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 2048,
      "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
      "head_dim": 128, "intermediate_size": 6144, "vocab_size": 151936,
      "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
      "norm_topk_prob": true, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6,
      "rope_theta": 1000000})"},
    // Qwen/Qwen3-Next-80B-A3B-Instruct
    {"qwen3-next-80b-a3b", R"({"architectures": ["Qwen3NextForCausalLM"], "hidden_size": 2048,
      "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2,
      "head_dim": 256, "intermediate_size": 5120, "vocab_size": 151936,
      "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
      "shared_expert_intermediate_size": 512, "norm_topk_prob": true,
      "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
      "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
      "partial_rotary_factor": 0.25, "max_position_embeddings": 262144,
      "rms_norm_eps": 1e-6, "rope_theta": 10000000})"},
    // mistralai/Mixtral-8x7B-v0.1
    {"mixtral-8x7b", R"({"architectures": ["MixtralForCausalLM"], "hidden_size": 4096,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
      "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8,
      "num_experts_per_tok": 2, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
      "rope_theta": 1000000})"},
});

}  // namespace

std::span<const std::string_view> shape_names() {
  static const auto kNames = [] {
    std::array<std::string_view, kShapes.size()> names;
    std::ranges::transform(kShapes, names.begin(), &Shape::name);
    return names;
  }();
  return kNames;
}

std::optional<model::ModelSpec> find_shape(std::string_view name) {
  const auto* found = std::ranges::find(kShapes, name, &Shape::name);
  return found == kShapes.end() ? std::nullopt
                                : std::optional(model::parse_spec(std::string(found->config)));
}

}  // namespace winnow::cli
