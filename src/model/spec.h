// What a model computes, layer by layer, as data. A family (families/) makes it from config.json;
// all code that runs, trains, measures or plans a model reads only this.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "model/compression.h"
#include "model/tensor_names.h"
#include "ops/activation.h"
#include "ops/delta_rule.h"
#include "ops/router.h"

namespace winnow::model {

/// RMSNorm: x / sqrt(mean(x^2) + eps), times the weight or (Gemma) one plus the weight. LayerNorm:
/// the same of x - mean(x).
struct NormSpec {
  enum class Kind : std::uint8_t { rms, rms_plus_one, layer, layer_plus_one };
  Kind kind = Kind::rms;
  float eps = 1e-5F;
  bool bias = false;  // added to the result; LayerNorm's only

  /// What is added to the weights that files hold.
  [[nodiscard]] float offset() const {
    return kind == Kind::rms_plus_one || kind == Kind::layer_plus_one ? 1.0F : 0.0F;
  }
  /// Whether it is a LayerNorm.
  [[nodiscard]] bool centers() const { return kind == Kind::layer || kind == Kind::layer_plus_one; }

  bool operator==(const NormSpec&) const = default;
};

/// Rotary position embedding of the first channels() channels of a head, in halves: channels i and
/// i + channels() / 2 are a plane, rotated by position * frequencies[i]. Interleaved, channels 2i
/// and 2i + 1 are. What config.json asks for, from a plain base to YaRN, comes down to these
/// numbers (rope_frequencies.h).
struct RopeSpec {
  std::vector<float> frequencies;  // radians per position of each plane
  float attention_factor = 1.0F;   // of the rotated channels
  bool interleaved = false;

  /// Even; the others of a head pass through.
  [[nodiscard]] int channels() const { return 2 * static_cast<int>(frequencies.size()); }

  bool operator==(const RopeSpec&) const = default;
};

/// Which keys the query at position i may see at all: key j <= i, and
///   full      every j
///   sliding   i - j < width
///   chunked   j / width == i / width (integer division)
struct Reach {
  enum class Kind : std::uint8_t { full, sliding, chunked };
  Kind kind = Kind::full;
  int width = 0;

  bool operator==(const Reach&) const = default;
};

/// Scales queries by their position (Llama 4, Ministral 3): after RoPE they are multiplied by 1 +
/// growth * log(1 + floor((position + first) / period)).
struct QueryGrowth {
  float growth = 0.0F;
  int period = 1;
  int first = 0;

  [[nodiscard]] float factor(int position) const {
    const int periods = (position + first) / period;
    return 1.0F + growth * std::log(1.0F + static_cast<float>(periods));
  }

  bool operator==(const QueryGrowth&) const = default;
};

/// Multi-head latent attention (DeepSeek V2) in its absorbed form: all heads share one entry, whose
/// key is a rotated part and behind it the normed latent, and whose value is that key. Each head's
/// query is taken to the latent by its own matrix, and what it attends to from there to its values
/// by another; files hold both of all heads as one tensor, kv_b_proj.
struct LatentSpec {
  int rank = 0;        // channels of the latent
  int query_rank = 0;  // of the latent that queries come from; 0: they have none
  int key_dim = 0;     // of a head, without the rotated part
  int value_dim = 0;   // of a head
  float norm_eps = 1e-6F;

  bool operator==(const LatentSpec&) const = default;
};

/// Softmax attention with grouped query heads.
struct AttentionSpec {
  /// Norm of queries and keys, of the layer's kind: of each head, with weights that all heads share
  /// or with its own; or of all heads' channels together.
  enum class QueryKeyNorm : std::uint8_t { none, per_head, own_per_head, whole };

  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;    // of queries and keys
  int value_dim = 0;   // of values
  float scale = 0.0F;  // of the scores
  std::optional<RopeSpec> rope;
  std::optional<QueryGrowth> query_growth;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  bool norms_after_rope = false;  // queries and keys; else before it
  bool norm_weights = true;       // false: they are all 1, and files have none
  bool value_norm = false;        // RMSNorm of each value head, without weights
  bool values_are_keys = false;   // values are the key projection's output too
  bool qkv_bias = false;
  bool output_bias = false;
  float output_multiplier = 1.0F;  // of the output, before its projection
  float soft_cap = 0.0F;           // > 0: scores become soft_cap * tanh(score / soft_cap)
  bool sinks = false;              // one logit per head joins the softmax's denominator
  /// The output is multiplied by the sigmoid of a second half that each head's query has.
  bool output_gate = false;
  Reach reach;
  /// The earlier layer whose entries this one attends to. It then has no keys and values of its
  /// own.
  std::optional<int> shares;
  /// With one KV head of head_dim channels: those that RoPE rotates, then the latent.
  std::optional<LatentSpec> latent;

  /// Whether it projects keys, and values apart from them.
  [[nodiscard]] bool projects_keys() const { return !shares; }
  [[nodiscard]] bool projects_values() const { return !shares && !values_are_keys && !latent; }
  [[nodiscard]] int group() const { return heads / kv_heads; }
  [[nodiscard]] int query_width() const { return heads * head_dim; }
  /// Of a head with a latent: channels that RoPE rotates.
  [[nodiscard]] int rotated_dim() const { return head_dim - latent->rank; }
  /// Outputs of the query projection.
  [[nodiscard]] int query_outputs() const {
    return latent ? heads * (latent->key_dim + rotated_dim())
                  : query_width() * (output_gate ? 2 : 1);
  }
  /// And its inputs, in a model of `hidden` channels.
  [[nodiscard]] int query_inputs(int hidden) const {
    return latent && latent->query_rank > 0 ? latent->query_rank : hidden;
  }
  [[nodiscard]] int key_width() const { return kv_heads * head_dim; }
  /// Of values beside the keys.
  [[nodiscard]] int value_width() const { return latent ? 0 : kv_heads * value_dim; }
  /// What attention gives, and what its output projection takes.
  [[nodiscard]] int attended_width() const { return heads * value_dim; }
  [[nodiscard]] int output_width() const {
    return heads * (latent ? latent->value_dim : value_dim);
  }

  bool operator==(const AttentionSpec&) const = default;
};

/// Of what a state space projects, before anything else, and of its output (Falcon-H1).
struct StateSpaceMultipliers {
  float gates = 1.0F;
  float values = 1.0F;
  float keys = 1.0F;
  float queries = 1.0F;
  float rates = 1.0F;
  float output = 1.0F;

  bool operator==(const StateSpaceMultipliers&) const = default;
};

/// A mixer that keeps a state of fixed size instead of entries. Queries, keys and values pass a
/// causal convolution of each channel.
struct RecurrentSpec {
  /// delta_net   linear attention by the gated delta rule (Qwen3-Next): SiLU follows the
  ///             convolution, queries and keys become of length 1; the output of each value head is
  ///             normed and multiplied by the SiLU of a projection
  /// short_conv  the convolution alone (LFM2): what it takes is multiplied by one projection, what
  ///             it gives by another. Each channel is a value head, and there are no keys
  /// state_space Mamba 2 (Dao and Gu 2024): SiLU follows the convolution, nothing is corrected; a
  ///             multiple of each head's values is added to the output, which is multiplied by the
  ///             SiLU of a projection and normed by groups of channels. What the convolution takes
  ///             lies as values, keys, queries
  enum class Kind : std::uint8_t { delta_net, short_conv, state_space };
  /// How a state space ends: the output times its gates, with a norm behind or before that.
  enum class Norm : std::uint8_t { none, before_gates, behind_gates };

  Kind kind = Kind::delta_net;
  ops::DeltaRuleShape heads;
  int taps = 0;                    // of the convolution
  bool conv_bias = false;          // added to its outputs
  Norm norm = Norm::behind_gates;  // of a state space, as the next
  int norm_groups = 1;
  StateSpaceMultipliers multipliers{};
  ops::RateLimits rates{};  // of a state space

  /// Channels that pass the convolution: queries, keys and values.
  [[nodiscard]] int channels() const { return 2 * heads.key_width() + heads.value_width(); }
  /// Whether states have a matrix for each head, with a rate and a decay of each token.
  [[nodiscard]] bool has_matrices() const { return kind != Kind::short_conv; }
  /// Whether a projection multiplies what the convolution takes.
  [[nodiscard]] bool gates_input() const { return kind == Kind::short_conv; }
  /// Projections of the layer's input that give a number for each value head.
  [[nodiscard]] int gates_of_heads() const {
    return kind == Kind::delta_net ? 2 : kind == Kind::state_space ? 1 : 0;
  }
  /// Outputs of all projections of the layer's input.
  [[nodiscard]] int projected() const {
    return channels() * (gates_input() ? 2 : 1) + heads.value_width() +
           gates_of_heads() * heads.value_heads;
  }
  /// The first channel of queries, keys and values among those that pass the convolution.
  [[nodiscard]] int first_query() const {
    return kind == Kind::state_space ? heads.value_width() + heads.key_width() : 0;
  }
  [[nodiscard]] int first_key() const {
    return kind == Kind::state_space ? heads.value_width() : heads.key_width();
  }
  [[nodiscard]] int first_value() const {
    return kind == Kind::state_space ? 0 : 2 * heads.key_width();
  }
  /// Floats that a sequence keeps: the matrices of all heads, and the last inputs of the
  /// convolution.
  [[nodiscard]] int state_size() const { return heads.state_size() + (taps - 1) * channels(); }

  bool operator==(const RecurrentSpec&) const = default;
};

/// Experts in place of one feed-forward network; FeedForwardSpec describes each of them.
struct ExpertsSpec {
  int count = 0;
  int active = 0;  // per token
  ops::RouterScore score = ops::RouterScore::softmax;
  bool normalized = false;  // the scores of the active ones are divided by their sum
  float scale = 1.0F;       // of the weights
  float nearness = 0.0F;    // ops::Router's
  bool router_bias = false;
  bool choice_bias = false;  // a constant per expert joins the scores in the choice alone
  int groups = 1;            // of experts; the active ones come from the best `active_groups`
  int active_groups = 1;
  int best_of_group = 2;        // by which groups are compared
  bool scales_input = false;    // a score multiplies what its expert takes, not what it gives
  int shared_intermediate = 0;  // of an expert that every token takes; 0: there is none
  bool shared_gate = false;     // its output is multiplied by a sigmoid
  /// Gemma 4: the experts take the stream, through a norm of their own; what they give and what
  /// the shared one gives is normed. The router takes the stream too, of unit mean square times a
  /// weight, and multiplies each expert's weight by a constant.
  bool beside = false;

  /// `choice_bias`: null where there is none.
  [[nodiscard]] ops::Router router(const float* choice_bias = nullptr) const {
    return {.count = count,
            .active = active,
            .score = score,
            .normalized = normalized,
            .scale = scale,
            .groups = groups,
            .active_groups = active_groups,
            .best_of_group = best_of_group,
            .choice_bias = choice_bias,
            .nearness = nearness};
  }

  bool operator==(const ExpertsSpec&) const = default;
};

/// out = down(act(gate x) * up x), or without a gate down(act(up x)).
struct FeedForwardSpec {
  int intermediate = 0;
  ops::Activation activation = ops::Activation::silu;
  bool gated = true;
  float clamp = 0.0F;  // > 0: the clamped GLU of gpt-oss
  bool bias = false;
  float gate_multiplier = 1.0F;  // of the gate, before the activation
  float multiplier = 1.0F;       // of what the network gives
  std::optional<ExpertsSpec> experts;

  /// False: the layer is its mixer alone.
  [[nodiscard]] bool exists() const { return intermediate > 0; }
  /// Width of the network that every token takes: the only one or the shared expert. 0: there is
  /// none.
  [[nodiscard]] int dense_width() const {
    return experts ? experts->shared_intermediate : intermediate;
  }
  /// Widths of all networks that one token takes, together.
  [[nodiscard]] int active_width() const {
    return dense_width() + (experts ? experts->active * intermediate : 0);
  }

  bool operator==(const FeedForwardSpec&) const = default;
};

/// One layer: x += multiplier * [norm](mixer([norm] x)), then the same with the feed-forward. A
/// parallel layer adds what both give for its input.
struct LayerSpec {
  std::variant<AttentionSpec, RecurrentSpec> mixer = AttentionSpec{};
  /// A recurrent mixer that takes what attention takes: the layer adds what both give (Falcon-H1).
  std::optional<RecurrentSpec> beside;
  FeedForwardSpec feed_forward;
  NormSpec norm;
  bool norm_before = true;
  bool norm_after = false;
  bool parallel = false;
  bool shares_norm = false;  // of a parallel layer: one norm serves both parts
  float residual_multiplier = 1.0F;
  bool output_scale = false;  // files hold a number by which the layer's output is multiplied

  /// The layer's attention; null when its mixer is recurrent.
  [[nodiscard]] const AttentionSpec* attention() const {
    return std::get_if<AttentionSpec>(&mixer);
  }
  /// The layer's recurrent mixer, in place of attention or beside it; null when it has none.
  [[nodiscard]] const RecurrentSpec* recurrent() const {
    return beside ? &*beside : std::get_if<RecurrentSpec>(&mixer);
  }
  /// The width of the chunks within which the layer attends; 0: it has none.
  [[nodiscard]] int chunk() const {
    return attention() != nullptr && attention()->reach.kind == Reach::Kind::chunked
               ? attention()->reach.width
               : 0;
  }
  /// Whether the layer stores entries: not a state, and not those of another layer.
  [[nodiscard]] bool stores() const { return attention() != nullptr && !attention()->shares; }
  /// Whether a cache rule may drop or merge what this layer stores: not entries that leave its
  /// reach anyhow.
  [[nodiscard]] bool compresses() const {
    return stores() && attention()->reach.kind == Reach::Kind::full;
  }

  bool operator==(const LayerSpec&) const = default;
};

/// Embeddings of tokens for each layer beside that of the model (Gemma 4). Layer i gets
///   p_i = (norm(projection_i x) + embedding_i(token)) / sqrt(2), x the model's own embedding,
/// and adds to its stream, last of all, norm(out(act(gate stream) * p_i)).
struct LayerEmbeddings {
  int width = 0;
  int vocab = 0;

  /// What the sum is multiplied by: 1 / sqrt(2), as the mean of two has half of their variance.
  static constexpr float kHalves = std::numbers::sqrt2_v<float> / 2.0F;
  /// What a token's embedding is multiplied by.
  [[nodiscard]] float scale() const;

  bool operator==(const LayerEmbeddings&) const = default;
};

/// The text of the config.json that a description was made from, for saving (config.h). What a
/// model computes does not depend on it.
struct ConfigText {
  std::string text;
  bool operator==(const ConfigText&) const { return true; }
};

struct ModelSpec {
  std::string family;  // transformers' model_type: "llama", ...
  int hidden = 0;
  int vocab = 0;
  int max_positions = 0;
  std::vector<LayerSpec> layers;
  NormSpec final_norm;
  bool tied_embeddings = false;  // the head is the embedding
  bool head_bias = false;
  float embedding_multiplier = 1.0F;
  float logit_multiplier = 1.0F;
  float final_soft_cap = 0.0F;  // > 0: logits become final_soft_cap * tanh(logit / final_soft_cap)
  std::optional<LayerEmbeddings> layer_embeddings;
  TensorNames names;

  DType dtype = DType::bf16;
  std::optional<int> bos_token;
  std::vector<int> eos_tokens;  // from generation_config.json, else config.json
  std::optional<DmsConfig> dms;
  std::optional<DmcConfig> dmc;
  ConfigText config;

  [[nodiscard]] int layer_count() const { return static_cast<int>(layers.size()); }
  [[nodiscard]] const LayerSpec& layer(int index) const {
    return layers[static_cast<std::size_t>(index)];
  }
  /// The first attention layer. All share scale, soft cap, sinks and output gates. For reach, RoPE,
  /// norms and, unless has_equal_heads(), the number of heads and their size ask the layer.
  [[nodiscard]] const AttentionSpec& attention() const;
  /// Whether the heads of all attention layers are of one number and size.
  [[nodiscard]] bool has_equal_heads() const;
  /// Channels of a head in the cache: as many as the widest heads have, filled up to what a page
  /// takes.
  [[nodiscard]] int cached_head_dim() const;
  /// The first layer that compresses, whose shape all that do have; the first attention layer where
  /// none does.
  [[nodiscard]] const AttentionSpec& compressing_attention() const;
  /// Whether attention layers have latents: all have, or none.
  [[nodiscard]] bool has_latents() const { return attention().latent.has_value(); }
  /// The mixer that all recurrent layers share; null where there are none.
  [[nodiscard]] const RecurrentSpec* recurrent() const;
  /// The widest network that every token takes in some layer (FeedForwardSpec::dense_width).
  [[nodiscard]] int dense_width() const;
  /// The feed-forward that all layers with experts share; null where no layer has experts.
  [[nodiscard]] const FeedForwardSpec* experts() const;

  /// Whether the model decides in this layer what its cache keeps: it was taught to, and the layer
  /// compresses.
  [[nodiscard]] bool decides(int index) const { return (dms || dmc) && layer(index).compresses(); }
  /// Whether it does so by an adapter.
  [[nodiscard]] bool has_adapter(int index) const {
    return dms && dms->source == DmsConfig::Source::adapter && decides(index);
  }
  /// Attention layers before `index` that store entries: its place in the cache. layer_count(): all
  /// of them.
  [[nodiscard]] int attention_before(int index) const;
  /// The place in the cache of what an attention layer attends to: its own, or that of the layer
  /// whose entries it shares.
  [[nodiscard]] int cache_place(int index) const {
    return attention_before(layer(index).attention()->shares.value_or(index));
  }
  /// KV heads of the layers before `index` that store entries. layer_count(): of all.
  [[nodiscard]] int cached_heads_before(int index) const;
  [[nodiscard]] int cached_heads() const { return cached_heads_before(layer_count()); }
  /// The width of the first layer's chunks that has any; 0: no layer has.
  [[nodiscard]] int chunk() const;
  /// The layers to whose entries others attend.
  [[nodiscard]] std::set<int> shared_layers() const;
  [[nodiscard]] bool shares_entries() const { return !shared_layers().empty(); }
  /// Channels that the layers together take of their embeddings; 0: there are none.
  [[nodiscard]] int layer_embeddings_width() const;
  /// 1 / sqrt(hidden): what the projections of layer_embeddings, and what routers of experts beside
  /// take, are multiplied by.
  [[nodiscard]] float stream_scale() const;
  /// Recurrent layers before `index`: its place in the state.
  [[nodiscard]] int recurrent_before(int index) const;
  /// Layers before `index` that would decide; layer_count(): all that would.
  [[nodiscard]] int compressing_before(int index) const;

  bool operator==(const ModelSpec&) const = default;
};

/// The first property by which `spec` is more than a plain decoder, whose layers are all alike: RMS
/// norms before each part, RoPE of whole heads, full reach, a SiLU gate, no caps, no multipliers.
/// Null for a plain one. What is made for plain decoders alone asks this.
const char* beyond_plain(const ModelSpec& spec);

/// The first property of `spec` that is computed on the CPU only; null if there is none.
const char* beyond_devices(const ModelSpec& spec);

/// The same of training: more is.
const char* beyond_device_training(const ModelSpec& spec);

/// The first property of `spec` that is not trained anywhere; null if there is none.
const char* beyond_training(const ModelSpec& spec);

/// Throws Error naming the first property of `spec` that no runner of this version computes
/// (`where`: the file that asks for it).
void require_supported(const ModelSpec& spec, const std::string& where);

/// Throws Error where decisions of the spec's retrofit would take channels of latents, all of which
/// are needed.
void require_supported_decisions(const ModelSpec& spec, const std::string& where);

}  // namespace winnow::model
