// The parts read_config is made of; nobody outside this room needs them.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/config.h"
#include "checkpoint/json.h"

namespace winnow::detail {

/// What the architecture's name says.
struct Architecture {
  Family family = Family::llama;
  bool dms = false;  // "Qwen3ForCausalLMDMS": only NVIDIA's code and winnow write this
  bool dmc = false;  // "LlamaForCausalLMDMC": ours
};

/// The class transformers has for a family ("LlamaForCausalLM").
std::string architecture_name(Family family);
/// transformers' model_type of a family ("llama").
std::string model_type_name(Family family);

/// The key's name transformers gives `type`: "float32", "float16" or "bfloat16".
std::string torch_dtype_name(DType type);

RopeConfig read_rope(const JsonObject& config, int max_positions);

/// nullopt when neither file speaks of DMS. `metadata`: dms_metadata.json, nullptr when absent.
std::optional<DmsConfig> read_dms(const JsonObject& config, const JsonObject* metadata,
                                  const Architecture& architecture, int head_dim);
std::optional<DmcConfig> read_dmc(const JsonObject& config, const Architecture& architecture);

/// True for exactly the convention of shisa-ai's checkpoints.
bool is_shisa_convention(const DmsConfig& dms);

}  // namespace winnow::detail
