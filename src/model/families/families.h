// The model families that winnow supports. A new family needs a file here that describes it, and a
// row in families.cc (docs/add-a-family.md).
#pragma once

#include <span>
#include <string_view>

#include "checkpoint/json.h"
#include "model/spec.h"

namespace winnow::model {

struct Family {
  std::string_view model_type;    // config.json's "model_type"
  std::string_view architecture;  // an entry of "architectures", transformers' class
  /// The model that a config.json of this family describes, without retrofit, special tokens and
  /// dtype. Throws Error with the name of a key that is not supported.
  ModelSpec (*describe)(const JsonObject& config);
};

std::span<const Family> families();

/// The row of the family that `spec` belongs to.
const Family& family_of(const ModelSpec& spec);

ModelSpec describe_arcee(const JsonObject& config);
ModelSpec describe_bamba(const JsonObject& config);
ModelSpec describe_cohere(const JsonObject& config);
ModelSpec describe_cohere2(const JsonObject& config);
ModelSpec describe_cohere2_moe(const JsonObject& config);
ModelSpec describe_cwm(const JsonObject& config);
ModelSpec describe_deepseek_v2(const JsonObject& config);
ModelSpec describe_deepseek_v3(const JsonObject& config);
ModelSpec describe_dots1(const JsonObject& config);
ModelSpec describe_ernie4_5(const JsonObject& config);
ModelSpec describe_ernie4_5_moe(const JsonObject& config);
ModelSpec describe_exaone(const JsonObject& config);
ModelSpec describe_exaone4(const JsonObject& config);
ModelSpec describe_exaone_moe(const JsonObject& config);
ModelSpec describe_falcon(const JsonObject& config);
ModelSpec describe_falcon_h1(const JsonObject& config);
ModelSpec describe_flex_olmo(const JsonObject& config);
ModelSpec describe_gemma(const JsonObject& config);
ModelSpec describe_gemma2(const JsonObject& config);
ModelSpec describe_gemma3(const JsonObject& config);
ModelSpec describe_gemma4(const JsonObject& config);
ModelSpec describe_gemma4_unified(const JsonObject& config);
ModelSpec describe_glm(const JsonObject& config);
ModelSpec describe_glm4(const JsonObject& config);
ModelSpec describe_glm4_moe(const JsonObject& config);
ModelSpec describe_glm4_moe_lite(const JsonObject& config);
ModelSpec describe_gpt_neox(const JsonObject& config);
ModelSpec describe_gpt_oss(const JsonObject& config);
ModelSpec describe_gptj(const JsonObject& config);
ModelSpec describe_granite(const JsonObject& config);
ModelSpec describe_granite_swa(const JsonObject& config);
ModelSpec describe_granitemoe(const JsonObject& config);
ModelSpec describe_granitemoe_swa(const JsonObject& config);
ModelSpec describe_granitemoehybrid(const JsonObject& config);
ModelSpec describe_granitemoeshared(const JsonObject& config);
ModelSpec describe_helium(const JsonObject& config);
ModelSpec describe_hunyuan_v1_dense(const JsonObject& config);
ModelSpec describe_hunyuan_v1_moe(const JsonObject& config);
ModelSpec describe_hy_v3(const JsonObject& config);
ModelSpec describe_hyperclovax(const JsonObject& config);
ModelSpec describe_jais2(const JsonObject& config);
ModelSpec describe_lfm2(const JsonObject& config);
ModelSpec describe_lfm2_moe(const JsonObject& config);
ModelSpec describe_llama(const JsonObject& config);
ModelSpec describe_llama4(const JsonObject& config);
ModelSpec describe_mellum(const JsonObject& config);
ModelSpec describe_minicpm3(const JsonObject& config);
ModelSpec describe_minimax_m2(const JsonObject& config);
ModelSpec describe_ministral(const JsonObject& config);
ModelSpec describe_ministral3(const JsonObject& config);
ModelSpec describe_mistral(const JsonObject& config);
ModelSpec describe_mixtral(const JsonObject& config);
ModelSpec describe_nemotron(const JsonObject& config);
ModelSpec describe_nemotron_h(const JsonObject& config);
ModelSpec describe_olmo2(const JsonObject& config);
ModelSpec describe_olmo3(const JsonObject& config);
ModelSpec describe_olmoe(const JsonObject& config);
ModelSpec describe_phi(const JsonObject& config);
ModelSpec describe_phi3(const JsonObject& config);
ModelSpec describe_phimoe(const JsonObject& config);
ModelSpec describe_qwen2(const JsonObject& config);
ModelSpec describe_qwen2_moe(const JsonObject& config);
ModelSpec describe_qwen3(const JsonObject& config);
ModelSpec describe_qwen3_5(const JsonObject& config);
ModelSpec describe_qwen3_5_moe(const JsonObject& config);
ModelSpec describe_qwen3_moe(const JsonObject& config);
ModelSpec describe_qwen3_next(const JsonObject& config);
ModelSpec describe_seed_oss(const JsonObject& config);
ModelSpec describe_smollm3(const JsonObject& config);
ModelSpec describe_solar_open(const JsonObject& config);
ModelSpec describe_stablelm(const JsonObject& config);
ModelSpec describe_starcoder2(const JsonObject& config);
ModelSpec describe_vaultgemma(const JsonObject& config);

}  // namespace winnow::model
