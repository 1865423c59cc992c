// Falcon (TII 2023): LayerNorm, parallel attention and feed-forward with a common norm or one each,
// one KV head or a few, a GELU without a gate. Falcon RW is not supported (ALiBi). Falcon 3 uses
// llama.cc.
#include <algorithm>

#include "base/error.h"
#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {
namespace {

// The number of norms before attention and feed-forward: a common one, or one for each.
int read_norms(const JsonObject& config, bool grouped) {
  if (config.has("num_ln_in_parallel_attn")) {
    return config.integer("num_ln_in_parallel_attn", 1, 2);
  }
  return grouped ? 2 : 1;
}

int read_kv_heads(const JsonObject& config, int heads, bool grouped) {
  if (grouped) {
    const int kv_heads = config.integer("num_kv_heads", 1, heads, heads);
    require(heads % kv_heads == 0,
            "{}: expected num_attention_heads to be a multiple of num_kv_heads, got {} and {}",
            config.where(), heads, kv_heads);
    return kv_heads;
  }
  return config.boolean("multi_query", true) ? 1 : heads;
}

}  // namespace

ModelSpec describe_falcon(const JsonObject& config) {
  require(!config.boolean("alibi", false), "{}: alibi: true is not supported", config.where());
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 2048,
                                                 .activation = "gelu",
                                                 .norm = NormSpec::Kind::layer,
                                                 .norm_bias = true,
                                                 .norm_eps_key = "layer_norm_epsilon",
                                                 .norm_eps = 1e-5,
                                                 .intermediate = 1});
  spec.tied_embeddings = config.boolean("tie_word_embeddings", true);
  const bool grouped = config.boolean("new_decoder_architecture", false);
  const bool parallel = grouped || config.boolean("parallel_attn", true);
  const bool shares_norm = parallel && read_norms(config, grouped) == 1;
  const bool bias = config.boolean("bias", false);
  for (LayerSpec& layer : spec.layers) {
    layer.parallel = parallel;
    layer.shares_norm = shares_norm;
    FeedForwardSpec& what = layer.feed_forward;
    what.intermediate = config.integer("ffn_hidden_size", 1, detail::kMaxIntermediate,
                                       std::min(4 * spec.hidden, detail::kMaxIntermediate));
    what.activation = detail::read_activation(config, "activation", "gelu");
    what.gated = false;
    what.bias = bias;
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    attention.kv_heads = read_kv_heads(config, attention.heads, grouped);
    attention.qkv_bias = bias;
    attention.output_bias = bias;
  }
  if (parallel && !shares_norm) {
    spec.names.attention_norm = "ln_attn";
    spec.names.mlp_norm = "ln_mlp";
  }
  spec.names.joins_heads = true;
  spec.names.renamed = {{"model.layers.", "transformer.h."},
                        {"model.embed_tokens.", "transformer.word_embeddings."},
                        {"model.norm.", "transformer.ln_f."},
                        {"self_attn.o_proj.", "self_attention.dense."},
                        {"self_attn.query_key_value.", "self_attention.query_key_value."},
                        {"mlp.up_proj.", "mlp.dense_h_to_4h."},
                        {"mlp.down_proj.", "mlp.dense_4h_to_h."}};
  return spec;
}

}  // namespace winnow::model
