#include "model/families/families.h"

#include <algorithm>
#include <array>
#include <cassert>

namespace winnow::model {
namespace {

constexpr std::array<Family, 5> kFamilies{{
    {"gemma2", "Gemma2ForCausalLM", describe_gemma2},
    {"llama", "LlamaForCausalLM", describe_llama},
    {"mistral", "MistralForCausalLM", describe_mistral},
    {"qwen2", "Qwen2ForCausalLM", describe_qwen2},
    {"qwen3", "Qwen3ForCausalLM", describe_qwen3},
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
