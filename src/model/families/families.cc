#include "model/families/families.h"

#include <algorithm>
#include <array>
#include <cassert>

namespace winnow::model {
namespace {

constexpr std::array<Family, 73> kFamilies{{
    {"arcee", "ArceeForCausalLM", describe_arcee},
    {"bamba", "BambaForCausalLM", describe_bamba},
    {"cohere", "CohereForCausalLM", describe_cohere},
    {"cohere2", "Cohere2ForCausalLM", describe_cohere2},
    {"cohere2_moe", "Cohere2MoeForCausalLM", describe_cohere2_moe},
    {"cwm", "CwmForCausalLM", describe_cwm},
    {"deepseek_v2", "DeepseekV2ForCausalLM", describe_deepseek_v2},
    {"deepseek_v3", "DeepseekV3ForCausalLM", describe_deepseek_v3},
    {"dots1", "Dots1ForCausalLM", describe_dots1},
    {"ernie4_5", "Ernie4_5ForCausalLM", describe_ernie4_5},
    {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM", describe_ernie4_5_moe},
    {"exaone", "ExaoneForCausalLM", describe_exaone},
    {"exaone4", "Exaone4ForCausalLM", describe_exaone4},
    {"exaone_moe", "ExaoneMoeForCausalLM", describe_exaone_moe},
    {"falcon", "FalconForCausalLM", describe_falcon},
    {"falcon_h1", "FalconH1ForCausalLM", describe_falcon_h1},
    {"flex_olmo", "FlexOlmoForCausalLM", describe_flex_olmo},
    {"gemma", "GemmaForCausalLM", describe_gemma},
    {"gemma2", "Gemma2ForCausalLM", describe_gemma2},
    {"gemma3_text", "Gemma3ForCausalLM", describe_gemma3},
    {"gemma4_text", "Gemma4ForCausalLM", describe_gemma4},
    {"gemma4_unified_text", "Gemma4UnifiedForCausalLM", describe_gemma4_unified},
    {"glm", "GlmForCausalLM", describe_glm},
    {"glm4", "Glm4ForCausalLM", describe_glm4},
    {"glm4_moe", "Glm4MoeForCausalLM", describe_glm4_moe},
    {"glm4_moe_lite", "Glm4MoeLiteForCausalLM", describe_glm4_moe_lite},
    {"gpt_neox", "GPTNeoXForCausalLM", describe_gpt_neox},
    {"gpt_oss", "GptOssForCausalLM", describe_gpt_oss},
    {"gptj", "GPTJForCausalLM", describe_gptj},
    {"granite", "GraniteForCausalLM", describe_granite},
    {"granite_swa", "GraniteSWAForCausalLM", describe_granite_swa},
    {"granitemoe", "GraniteMoeForCausalLM", describe_granitemoe},
    {"granitemoe_swa", "GraniteMoeSWAForCausalLM", describe_granitemoe_swa},
    {"granitemoehybrid", "GraniteMoeHybridForCausalLM", describe_granitemoehybrid},
    {"granitemoeshared", "GraniteMoeSharedForCausalLM", describe_granitemoeshared},
    {"helium", "HeliumForCausalLM", describe_helium},
    {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", describe_hunyuan_v1_dense},
    {"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", describe_hunyuan_v1_moe},
    {"hy_v3", "HYV3ForCausalLM", describe_hy_v3},
    {"hyperclovax", "HyperCLOVAXForCausalLM", describe_hyperclovax},
    {"jais2", "Jais2ForCausalLM", describe_jais2},
    {"lfm2", "Lfm2ForCausalLM", describe_lfm2},
    {"lfm2_moe", "Lfm2MoeForCausalLM", describe_lfm2_moe},
    {"llama", "LlamaForCausalLM", describe_llama},
    {"llama4_text", "Llama4ForCausalLM", describe_llama4},
    {"mellum", "MellumForCausalLM", describe_mellum},
    {"minicpm3", "MiniCPM3ForCausalLM", describe_minicpm3},
    {"minimax_m2", "MiniMaxM2ForCausalLM", describe_minimax_m2},
    {"ministral", "MinistralForCausalLM", describe_ministral},
    {"ministral3", "Ministral3ForCausalLM", describe_ministral3},
    {"mistral", "MistralForCausalLM", describe_mistral},
    {"mixtral", "MixtralForCausalLM", describe_mixtral},
    {"nemotron", "NemotronForCausalLM", describe_nemotron},
    {"nemotron_h", "NemotronHForCausalLM", describe_nemotron_h},
    {"olmo2", "Olmo2ForCausalLM", describe_olmo2},
    {"olmo3", "Olmo3ForCausalLM", describe_olmo3},
    {"olmoe", "OlmoeForCausalLM", describe_olmoe},
    {"phi", "PhiForCausalLM", describe_phi},
    {"phi3", "Phi3ForCausalLM", describe_phi3},
    {"phimoe", "PhimoeForCausalLM", describe_phimoe},
    {"qwen2", "Qwen2ForCausalLM", describe_qwen2},
    {"qwen2_moe", "Qwen2MoeForCausalLM", describe_qwen2_moe},
    {"qwen3", "Qwen3ForCausalLM", describe_qwen3},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", describe_qwen3_5_moe},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", describe_qwen3_5},
    {"qwen3_moe", "Qwen3MoeForCausalLM", describe_qwen3_moe},
    {"qwen3_next", "Qwen3NextForCausalLM", describe_qwen3_next},
    {"seed_oss", "SeedOssForCausalLM", describe_seed_oss},
    {"smollm3", "SmolLM3ForCausalLM", describe_smollm3},
    {"solar_open", "SolarOpenForCausalLM", describe_solar_open},
    {"stablelm", "StableLmForCausalLM", describe_stablelm},
    {"starcoder2", "Starcoder2ForCausalLM", describe_starcoder2},
    {"vaultgemma", "VaultGemmaForCausalLM", describe_vaultgemma},
}};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

const Family& family_of(const ModelSpec& spec) {
  const auto* found = std::ranges::find(kFamilies, spec.family, &Family::model_type);
  assert(found != kFamilies.end());
  return *found;
}

}  // namespace winnow::model
