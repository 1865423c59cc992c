// Granite 3 with experts (IBM Granite Team 2024), with or without a shared expert: Granite's
// multipliers, a softmax over the chosen experts, the experts' matrices in one tensor. Granite 4's
// class has Mamba 2 in most layers, or in none; its models with sliding layers have sinks.
#include <algorithm>

#include "base/error.h"
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/granite_layers.h"
#include "model/families/layer_types.h"
#include "model/families/mamba_layers.h"

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

// Without experts: the shared network is the layer's dense feed-forward.
void set_granite_network(ModelSpec& spec, int intermediate) {
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.intermediate = intermediate;
    layer.feed_forward.bias = false;
  }
  spec.names.joins_gate_up = true;
  spec.names.renamed = {{"mlp.gate_up_proj", "shared_mlp.input_linear"},
                        {"mlp.down_proj", "shared_mlp.output_linear"}};
}

// Which layers are recurrent; all of them if the file does not say.
std::vector<bool> granite_mamba_layers(const JsonObject& config, int layers) {
  const char* key = config.has(detail::kLayerTypes) ? detail::kLayerTypes : "layers_block_type";
  const nlohmann::json* types = config.find(key);
  std::vector<bool> recurrent(static_cast<std::size_t>(layers), true);
  if (types == nullptr) {
    return recurrent;
  }
  if (!types->is_array() || types->size() != recurrent.size()) {
    config.reject(key, fmt::format("a type for each of {} layers", layers));
  }
  for (std::size_t i = 0; i < recurrent.size(); ++i) {
    const nlohmann::json& type = (*types)[i];
    recurrent[i] = type == "mamba" || type == "linear_attention";
    require(recurrent[i] || type == "attention" || type == "full_attention",
            "{}: {}: {} is not supported, expected \"mamba\" or \"attention\"", config.where(), key,
            described(type));
  }
  return recurrent;
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

ModelSpec describe_granitemoehybrid(const JsonObject& config) {
  ModelSpec spec = describe_granite(config);
  if (config.text("position_embedding_type", "") != "rope") {
    detail::for_each_attention(spec, [](AttentionSpec& attention) { attention.rope.reset(); });
  }
  const int shared = config.integer("shared_intermediate_size", 1, detail::kMaxIntermediate, 1024);
  if (config.integer("num_local_experts", 0, detail::kMaxExperts, 8) > 0) {
    set_granite_experts(config, spec, shared);
  } else {
    set_granite_network(spec, shared);
  }
  detail::set_mamba_layers(config, spec, granite_mamba_layers(config, spec.layer_count()));
  return spec;
}

ModelSpec describe_granitemoe_swa(const JsonObject& config) {
  ModelSpec spec = describe_granitemoeshared(config);
  spec.names.renamed.resize(2);  // the experts' tensors have their usual names
  detail::set_granite_sliding_layers(config, spec);
  return spec;
}

}  // namespace winnow::model
