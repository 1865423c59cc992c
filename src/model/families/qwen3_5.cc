// Qwen 3.5 (Qwen team 2026), with and without experts: Qwen3-Next's layers, but files store each
// projection as a tensor of its own.
#include "model/families/families.h"
#include "model/families/qwen_experts.h"
#include "model/families/qwen_hybrid.h"

namespace winnow::model {

ModelSpec describe_qwen3_5(const JsonObject& config) {
  return detail::read_qwen_hybrid(config, {.kv_heads = 4});
}

ModelSpec describe_qwen3_5_moe(const JsonObject& config) {
  ModelSpec spec = detail::read_qwen_hybrid(config, {.kv_heads = 2, .intermediate = 512});
  detail::set_qwen_experts(config, spec,
                           {.count = 256,
                            .active = 8,
                            .normalized = true,
                            .shared_intermediate = 512,
                            .shared_gate = true},
                           512, detail::QwenExpertKeys::sizes);
  return spec;
}

}  // namespace winnow::model
