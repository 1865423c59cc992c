#include "apps/winnow/shapes.h"

namespace winnow::cli {
namespace {

// HuggingFaceTB/SmolLM2-135M
ModelConfig smollm2_135m() {
  ModelConfig config;
  config.hidden = 576;
  config.layers = 30;
  config.heads = 9;
  config.kv_heads = 3;
  config.head_dim = 64;
  config.intermediate = 1536;
  config.vocab = 49152;
  config.max_positions = 8192;
  config.rope.theta = 100000.0;
  config.tied_embeddings = true;
  return config;
}

// meta-llama/Llama-2-7b-hf
ModelConfig llama_2_7b() {
  ModelConfig config;
  config.hidden = 4096;
  config.layers = 32;
  config.heads = 32;
  config.kv_heads = 32;
  config.head_dim = 128;
  config.intermediate = 11008;
  config.vocab = 32000;
  config.max_positions = 4096;
  return config;
}

// meta-llama/Llama-3.2-1B
ModelConfig llama_3_2_1b() {
  ModelConfig config;
  config.hidden = 2048;
  config.layers = 16;
  config.heads = 32;
  config.kv_heads = 8;
  config.head_dim = 64;
  config.intermediate = 8192;
  config.vocab = 128256;
  config.max_positions = 131072;
  config.rope = {.theta = 500000.0,
                 .scaling = RopeConfig::Scaling::llama3,
                 .factor = 32.0,
                 .low_freq_factor = 1.0,
                 .high_freq_factor = 4.0,
                 .original_context = 8192};
  config.tied_embeddings = true;
  return config;
}

// Qwen/Qwen3-8B
ModelConfig qwen3_8b() {
  ModelConfig config;
  config.family = Family::qwen3;
  config.hidden = 4096;
  config.layers = 36;
  config.heads = 32;
  config.kv_heads = 8;
  config.head_dim = 128;
  config.intermediate = 12288;
  config.vocab = 151936;
  config.max_positions = 40960;
  config.norm_eps = 1e-6F;
  config.rope.theta = 1000000.0;
  config.qk_norm = true;
  return config;
}

}  // namespace

std::optional<ModelConfig> find_shape(std::string_view name) {
  if (name == "smollm2-135m") {
    return smollm2_135m();
  }
  if (name == "llama-2-7b") {
    return llama_2_7b();
  }
  if (name == "llama-3.2-1b") {
    return llama_3_2_1b();
  }
  if (name == "qwen3-8b") {
    return qwen3_8b();
  }
  return std::nullopt;
}

}  // namespace winnow::cli
