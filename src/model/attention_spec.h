// Softmax attention as a layer's token mixer: heads, RoPE, reach, what keys and values are.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

namespace winnow::model {

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
  /// Whether the other layer has as many heads, of the same size.
  [[nodiscard]] bool has_heads_of(const AttentionSpec& other) const {
    return heads == other.heads && kv_heads == other.kv_heads && head_dim == other.head_dim;
  }
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

}  // namespace winnow::model
