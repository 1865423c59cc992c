// DeepSeek V2 and V2-Lite (DeepSeek-AI 2024): multi-head latent attention; a softmax router, which
// may first choose the groups with the best single experts; shared experts.
#include "base/error.h"
#include "checkpoint/json.h"
#include "model/families/families.h"
#include "model/families/latent_layers.h"
#include "model/families/shared_experts.h"

namespace winnow::model {

ModelSpec describe_deepseek_v2(const JsonObject& config) {
  ModelSpec spec = detail::read_latent_decoder(
      config, {.max_positions = 2048, .intermediate = 11008}, {.interleaved = true});
  const std::string method = config.text("topk_method", "greedy");
  const bool by_group = method == "group_limited_greedy";
  require(by_group || method == "greedy",
          "{}: topk_method {} is not supported, expected \"greedy\" or \"group_limited_greedy\"",
          config.where(), in_quotes(method));
  for (const char* key : {"norm_topk_prob", "mlp_bias"}) {
    require(!config.boolean(key, false), "{}: {}: true is not supported for this family",
            config.where(), key);
  }
  detail::set_shared_experts(config, spec,
                             {.count = 64, .active = 6, .shared = 2, .intermediate = 1407});
  for (LayerSpec& layer : spec.layers) {
    if (auto& experts = layer.feed_forward.experts) {
      experts->score = ops::RouterScore::softmax;
      experts->normalized = false;
      experts->choice_bias = false;
      experts->best_of_group = 1;
      experts->groups = by_group ? experts->groups : 1;
      experts->active_groups = by_group ? experts->active_groups : 1;
    }
  }
  return spec;
}

}  // namespace winnow::model
