// EXAONE 3.0, 3.5 and Deep (LG AI Research 2024): Llama's layers with other tensor names.
#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {

ModelSpec describe_exaone(const JsonObject& config) {
  const nlohmann::json named = detail::with_keys(config, {{"num_hidden_layers", "num_layers"},
                                                          {"rms_norm_eps", "layer_norm_epsilon"},
                                                          {"hidden_act", "activation_function"}});
  ModelSpec spec = detail::read_decoder(
      JsonObject(named, config.where()),
      {.max_positions = 4096, .kv_heads = 8, .norm_eps = 1e-5, .rope = {.theta = 500000.0}});
  detail::set_biases(config, spec);
  spec.names.attention_norm = "ln_1";
  spec.names.mlp_norm = "ln_2";
  spec.names.renamed = {
      {"model.layers.", "transformer.h."},  {"model.embed_tokens.", "transformer.wte."},
      {"model.norm.", "transformer.ln_f."}, {".self_attn.o_proj.", ".attn.attention.out_proj."},
      {".self_attn.", ".attn.attention."},  {"mlp.gate_proj.", "mlp.c_fc_0."},
      {"mlp.up_proj.", "mlp.c_fc_1."},      {"mlp.down_proj.", "mlp.c_proj."}};
  return spec;
}

}  // namespace winnow::model
