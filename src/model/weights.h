// A model's weights in the form that the forward pass uses.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "model/shard.h"
#include "ops/weight.h"

namespace winnow::model {

/// DMS adapter of one layer (adapter.h): logit = scale * adapter(norm(hidden)) - offset.
struct AdapterWeights {
  std::vector<float> norm;  // [hidden]; empty: no norm
  // linear and mlp:
  ops::Weight projection;         // [kv_heads, hidden or width]
  std::vector<float> bias;        // [kv_heads] or empty
  ops::Weight inner;              // mlp: [width, hidden]
  std::vector<float> inner_bias;  // [width]
  // gate:
  ops::Weight query;              // [heads * width, hidden]
  std::vector<float> query_bias;  // [heads * width]
  ops::Weight key;                // [kv_heads * width, hidden]
  std::vector<float> query_norm;  // [width]
  std::vector<float> key_norm;    // [width]
  std::vector<float> sinks;       // [kv_heads, sinks, width]
  std::vector<float> group_bias;  // [kv_heads, group]
};

/// One expert: a feed-forward network that some tokens use.
struct ExpertWeights {
  std::vector<float> gate_bias;  // [intermediate] or empty
  std::vector<float> up_bias;
  std::vector<float> down_bias;  // [hidden] or empty
  ops::Weight gate;              // [intermediate, hidden]
  ops::Weight up;                // [intermediate, hidden]
  ops::Weight down;              // [hidden, intermediate]
};

/// Weights of a recurrent mixer. The layer has its output projection, except beside attention. If
/// files join projections (TensorNames), `input` and `rate` hold all of them.
struct RecurrentWeights {
  ops::Weight input_gate;         // [channels, hidden]; short convolutions
  ops::Weight input;              // [channels, hidden]: queries, keys and values
  ops::Weight gate;               // [value heads * value_dim, hidden]
  ops::Weight rate;               // [value heads, hidden], never quantised
  ops::Weight decay;              // [value heads, hidden], never quantised
  std::vector<float> taps;        // [channels, taps]
  std::vector<float> conv_bias;   // [channels] or empty
  std::vector<float> log_decay;   // [value heads]
  std::vector<float> decay_bias;  // [value heads]
  std::vector<float> skip;        // [value heads]; state spaces: weight of the values in the output
  std::vector<float> norm;        // [value_dim]; state spaces: [value width] or empty
  ops::Weight output;             // [hidden, value width]; mixers beside attention
};

/// Weights of latent attention (LatentSpec). Its LayerWeights::query is the second projection of
/// queries if they have a latent; its LayerWeights::key gives the latent, then the rotated part.
struct LatentWeights {
  ops::Weight query_down;         // [query_rank, hidden]
  std::vector<float> query_bias;  // [query_rank] or empty
  std::vector<float> query_norm;  // [query_rank]
  std::vector<float> norm;        // [rank]
  ops::Weight key_up;             // [heads * rank, key_dim]: maps queries to the latent
  ops::Weight value_up;           // [heads * value_dim, rank]
};

struct LayerWeights {
  // A member is empty if the model lacks it. Norms hold the factors of x / rms(x).
  std::vector<float> attention_norm;       // [hidden] before attention
  std::vector<float> attention_norm_bias;  // [hidden]
  std::vector<float> attention_post_norm;  // [hidden] of the attention output
  std::vector<float> mlp_norm;             // [hidden]
  std::vector<float> mlp_norm_bias;        // [hidden]
  std::vector<float> mlp_post_norm;        // [hidden]
  std::vector<float> query_norm;           // [head_dim], or [heads * head_dim]; 1 without weights
  std::vector<float> key_norm;
  std::vector<float> query_bias;  // as many as `query` has rows
  std::vector<float> key_bias;    // [kv_heads * head_dim]
  std::vector<float> value_bias;
  std::vector<float> output_bias;  // [hidden]
  std::vector<float> sinks;        // [heads]
  std::vector<float> gate_bias;    // [intermediate]
  std::vector<float> up_bias;
  std::vector<float> down_bias;  // [hidden]
  ops::Weight query;             // [heads * head_dim, hidden]; each head with its output gate
  ops::Weight key;               // [kv_heads * head_dim, hidden]
  ops::Weight value;             // [kv_heads * head_dim, hidden]
  ops::Weight output;            // [hidden, heads * head_dim], or a recurrent mixer's
  ops::Weight gate;              // [intermediate, hidden]; no data in a layer without a gate
  ops::Weight up;                // [intermediate, hidden]
  ops::Weight down;              // [hidden, intermediate]
  // Layers with experts, where gate, up and down are the shared expert's:
  ops::Weight router;  // [experts, hidden], never quantised
  std::vector<float> router_bias;
  std::vector<float> choice_bias;  // [experts]
  ops::Weight shared_gate;         // [1, hidden], never quantised
  // Layers with experts beside a dense feed-forward (ExpertsSpec):
  std::vector<float> shared_post_norm;  // [hidden], like the next
  std::vector<float> experts_norm;
  std::vector<float> experts_post_norm;
  std::vector<float> router_norm;
  std::vector<float> expert_scale;  // [experts]
  std::vector<ExpertWeights> experts;
  RecurrentWeights recurrent;
  LatentWeights latent;
  AdapterWeights adapter;
  std::vector<float> output_scale;  // [1]
  // Models with embeddings for each layer (LayerEmbeddings):
  ops::Weight embedding_gate;         // [width, hidden]
  ops::Weight embedding_output;       // [hidden, width]
  std::vector<float> embedding_norm;  // [hidden]
};

/// What a head has beside its layer (DraftHeadSpec).
struct DraftHeadWeights {
  ops::Weight fusion;                 // [hidden, DraftHeadSpec::fused()]
  std::vector<float> input_norm;      // [inputs] or empty
  std::vector<float> embedding_norm;  // [hidden]
  std::vector<std::int32_t> tokens;   // [vocab]: what it drafts, in the target's vocabulary, or
                                      // empty: all tokens in order
};

/// Views of a checkpoint's tensors, or of copies quantised on loading; it owns what they refer to.
struct Weights {
  ops::Weight embedding;    // [vocab, hidden]
  ops::Weight head;         // [vocab, hidden]; the embedding when tied
  std::vector<float> norm;  // [hidden]
  std::vector<float> norm_bias;
  std::vector<float> head_bias;  // [vocab]
  // Models with embeddings for each layer; the parts of all layers are side by side:
  ops::Weight layer_embedding;               // [vocab, layers * width]
  ops::Weight layer_projection;              // [layers * width, hidden]
  std::vector<float> layer_projection_norm;  // [width]
  std::vector<LayerWeights> layers;
  DraftHeadWeights draft_head;

  std::vector<ops::QuantizedWeight> quantized;
  std::vector<std::shared_ptr<const void>> owners;

  /// All matrices that a decode step reads for every token: everything but the embedding rows and
  /// the experts.
  [[nodiscard]] std::vector<ops::Weight> matrices() const;
  /// Bytes of all matrices that a decode step reads: everything but the embedding rows and the
  /// experts of `spec` that no sequence uses, if each of `sequences` uses random experts.
  [[nodiscard]] std::size_t bytes_per_step(const ModelSpec& spec, int sequences) const;
  /// Bytes of all experts.
  [[nodiscard]] std::size_t expert_bytes() const;
};

/// Receives the layers that are done, from 0 on, and their number.
using OnLayer = std::function<void(int done, int layers)>;

/// Weights of a checkpoint, mapped without copying, or with every matrix quantised to `format`
/// (int8 or int4). With `keep_packed`, matrices of Checkpoint::packed() stay packed; devices do
/// not take these. For a shard, only the weights of its rank are read.
Weights load_weights(const Checkpoint& checkpoint, std::optional<ops::WeightFormat> format = {},
                     bool keep_packed = true, const Shard& shard = {},
                     const OnLayer& on_layer = {});

/// Random weights, for benchmarks of a shape: `type` is f32, f16 or bf16. A shard gets its part of
/// the weights that the same seed gives for the whole model.
Weights random_weights(const ModelSpec& spec, DType type, std::uint64_t seed,
                       std::optional<ops::WeightFormat> format = {}, const Shard& shard = {});

}  // namespace winnow::model
