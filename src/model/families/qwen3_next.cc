// Qwen3-Next (Qwen team 2025): three of four layers are gated delta nets, the fourth has gated
// attention; 512 experts, of which a token takes 10, and a gated shared expert.
#include "model/families/families.h"
#include "model/families/qwen_experts.h"
#include "model/families/qwen_hybrid.h"

namespace winnow::model {

ModelSpec describe_qwen3_next(const JsonObject& config) {
  ModelSpec spec = detail::read_qwen_hybrid(config, {.kv_heads = 2, .intermediate = 5632});
  spec.names.joins_recurrent = true;
  detail::set_qwen_experts(config, spec,
                           {.count = 512,
                            .active = 10,
                            .normalized = true,
                            .shared_intermediate = 512,
                            .shared_gate = true},
                           512);
  return spec;
}

}  // namespace winnow::model
