#include "model/families/families.h"

#include <algorithm>
#include <array>
#include <cassert>

namespace winnow::model {
namespace {

constexpr std::array<Family, 25> kFamilies{{
    {"arcee", "ArceeForCausalLM", describe_arcee},
    {"cwm", "CwmForCausalLM", describe_cwm},
    {"exaone4", "Exaone4ForCausalLM", describe_exaone4},
    {"gemma", "GemmaForCausalLM", describe_gemma},
    {"gemma2", "Gemma2ForCausalLM", describe_gemma2},
    {"gemma3_text", "Gemma3ForCausalLM", describe_gemma3},
    {"gpt_oss", "GptOssForCausalLM", describe_gpt_oss},
    {"granite", "GraniteForCausalLM", describe_granite},
    {"llama", "LlamaForCausalLM", describe_llama},
    {"ministral", "MinistralForCausalLM", describe_ministral},
    {"ministral3", "Ministral3ForCausalLM", describe_ministral3},
    {"mistral", "MistralForCausalLM", describe_mistral},
    {"mixtral", "MixtralForCausalLM", describe_mixtral},
    {"olmo2", "Olmo2ForCausalLM", describe_olmo2},
    {"olmo3", "Olmo3ForCausalLM", describe_olmo3},
    {"phi3", "Phi3ForCausalLM", describe_phi3},
    {"qwen2", "Qwen2ForCausalLM", describe_qwen2},
    {"qwen2_moe", "Qwen2MoeForCausalLM", describe_qwen2_moe},
    {"qwen3", "Qwen3ForCausalLM", describe_qwen3},
    {"qwen3_moe", "Qwen3MoeForCausalLM", describe_qwen3_moe},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", describe_qwen3_5},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", describe_qwen3_5_moe},
    {"qwen3_next", "Qwen3NextForCausalLM", describe_qwen3_next},
    {"seed_oss", "SeedOssForCausalLM", describe_seed_oss},
    {"smollm3", "SmolLM3ForCausalLM", describe_smollm3},
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
