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
#include "model/attention_spec.h"
#include "model/compression.h"
#include "model/draft_head_spec.h"
#include "model/recurrent_spec.h"
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
  std::optional<DraftHeadSpec> draft_head;  // drafts for another model, and does nothing else
  TensorNames names;

  DType dtype = DType::bf16;
  std::optional<int> bos_token;
  std::vector<int> eos_tokens;  // from generation_config.json, else config.json
  std::optional<DmsConfig> dms;
  std::optional<DmcConfig> dmc;
  ConfigText config;

  [[nodiscard]] int layer_count() const { return static_cast<int>(layers.size()); }
  /// What attention takes of a token.
  [[nodiscard]] int attention_inputs() const {
    return draft_head && draft_head->widens_attention() ? 2 * hidden : hidden;
  }
  /// Rows of the output matrix.
  [[nodiscard]] int head_rows() const { return draft_head ? draft_head->vocab : vocab; }
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

}  // namespace winnow::model
