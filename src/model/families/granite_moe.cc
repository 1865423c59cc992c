// Granite 3 with experts (IBM Granite Team 2024), with and without a network that every token
// takes: Granite's multipliers, the softmax of the chosen experts, their matrices in one tensor.
#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {
namespace {

void set_granite_experts(const JsonObject& config, ModelSpec& spec, int shared) {
  const int count = config.integer("num_local_experts", 1, detail::kMaxExperts, 8);
  const ExpertsSpec experts{
      .count = count,
      .active = config.integer("num_experts_per_tok", 1, count, std::min(2, count)),
      .score = ops::RouterScore::softmax_of_chosen,
      .shared_intermediate = shared};
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.bias = false;
    layer.feed_forward.experts = experts;
  }
  spec.names.feed_forward = "block_sparse_moe";
  spec.names.router = "router";
  spec.names.stacks = TensorNames::ExpertStacks::halves;
  spec.names.joins_gate_up = shared > 0;
  spec.names.renamed = {
      {"block_sparse_moe.shared_expert.gate_up_proj", "shared_mlp.input_linear"},
      {"block_sparse_moe.shared_expert.down_proj", "shared_mlp.output_linear"},
      {"block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.input_linear.weight"},
      {"block_sparse_moe.experts.down_proj", "block_sparse_moe.output_linear.weight"},
      {"block_sparse_moe.router.weight", "block_sparse_moe.router.layer.weight"}};
}

}  // namespace

ModelSpec describe_granitemoe(const JsonObject& config) {
  ModelSpec spec = describe_granite(config);
  set_granite_experts(config, spec, 0);
  return spec;
}

ModelSpec describe_granitemoeshared(const JsonObject& config) {
  ModelSpec spec = describe_granite(config);
  set_granite_experts(config, spec,
                      config.integer("shared_intermediate_size", 0, detail::kMaxIntermediate, 0));
  return spec;
}

}  // namespace winnow::model
