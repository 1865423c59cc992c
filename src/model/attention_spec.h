// Softmax attention as a layer's token mixer: heads, RoPE, reach, keys and values.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

namespace winnow::model {

/// Rotary position embedding of the first channels() channels of a head, in halves: channels i and
/// i + channels() / 2 form a plane, rotated by position * frequencies[i]. If interleaved, channels
/// 2i and 2i + 1 do. Every RoPE of config.json, from a plain base to YaRN, becomes these numbers
/// (rope_frequencies.h).
struct RopeSpec {
  std::vector<float> frequencies;  // radians per position of each plane
  float attention_factor = 1.0F;   // multiplies the rotated channels
  bool interleaved = false;

  /// An even number; the other channels of a head are not rotated.
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

/// Multi-head latent attention (DeepSeek V2) in its absorbed form. All heads share one entry: its
/// key is a rotated part followed by the normed latent, and its value is the same vector. Each head
/// has a matrix that maps its query to the latent, and one that maps the attention output from the
/// latent to its values. Files store these matrices of all heads as one tensor, kv_b_proj.
struct LatentSpec {
  int rank = 0;        // channels of the latent
  int query_rank = 0;  // channels of the latent of queries; 0: there is none
  int key_dim = 0;     // key channels of a head, without the rotated part
  int value_dim = 0;   // value channels of a head
  float norm_eps = 1e-6F;

  bool operator==(const LatentSpec&) const = default;
};

/// One rank's part of attention with fewer KV heads than ranks (shard.h): several ranks hold its KV
/// head, each with some of the head's query heads.
struct GroupShare {
  int group = 0;  // the KV head's query heads on all ranks
  int first = 0;  // the place among them of the rank's first one

  bool operator==(const GroupShare&) const = default;
};

/// Softmax attention with grouped query heads.
struct AttentionSpec {
  /// Norm of queries and keys, of the same kind as the layer's norms: per head, with weights that
  /// all heads share or with own weights; or over the channels of all heads.
  enum class QueryKeyNorm : std::uint8_t { none, per_head, own_per_head, whole };

  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;    // of queries and keys
  int value_dim = 0;   // of values
  float scale = 0.0F;  // of the scores
  std::optional<RopeSpec> rope;
  std::optional<QueryGrowth> query_growth;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  bool norms_after_rope = false;  // the norms of queries and keys come after RoPE, else before it
  bool norm_weights = true;       // false: all weights are 1, and files have none
  bool value_norm = false;        // RMSNorm of each value head, without weights
  bool values_are_keys = false;   // the key projection's output is also the values
  bool qkv_bias = false;
  bool output_bias = false;
  float output_multiplier = 1.0F;  // of the attention output, before the output projection
  float soft_cap = 0.0F;           // > 0: scores become soft_cap * tanh(score / soft_cap)
  bool sinks = false;              // one logit per head joins the softmax's denominator
  /// The query projection has a second half per head, whose sigmoid multiplies the output.
  bool output_gate = false;
  Reach reach;
  /// The earlier layer whose entries this layer attends to. It then has no own keys and
  /// values.
  std::optional<int> shares;
  /// With it there is one KV head; its head_dim channels are the rotated part, then the latent.
  std::optional<LatentSpec> latent;
  /// Of a rank's part: set on all ranks where they outnumber the layer's KV heads.
  std::optional<GroupShare> group_share;

  /// Whether it projects keys, and values with a separate matrix.
  [[nodiscard]] bool projects_keys() const { return !shares; }
  [[nodiscard]] bool projects_values() const { return !shares && !values_are_keys && !latent; }
  [[nodiscard]] int group() const { return heads / kv_heads; }
  /// The same, counting the query heads that other ranks have of this part's KV head.
  [[nodiscard]] int whole_group() const { return group_share ? group_share->group : group(); }
  /// Whether each KV head's first query head is here: on one of the ranks that hold the KV head.
  [[nodiscard]] bool has_first_queries() const { return !group_share || group_share->first == 0; }
  /// Whether the other layer has as many heads, of the same size.
  [[nodiscard]] bool has_heads_of(const AttentionSpec& other) const {
    return heads == other.heads && kv_heads == other.kv_heads && head_dim == other.head_dim;
  }
  [[nodiscard]] int query_width() const { return heads * head_dim; }
  /// With a latent: the channels of a head that RoPE rotates.
  [[nodiscard]] int rotated_dim() const { return head_dim - latent->rank; }
  /// Outputs of the query projection.
  [[nodiscard]] int query_outputs() const {
    return latent ? heads * (latent->key_dim + rotated_dim())
                  : query_width() * (output_gate ? 2 : 1);
  }
  /// Inputs of the query projection, in a model of `hidden` channels.
  [[nodiscard]] int query_inputs(int hidden) const {
    return latent && latent->query_rank > 0 ? latent->query_rank : hidden;
  }
  [[nodiscard]] int key_width() const { return kv_heads * head_dim; }
  /// The width of values that are projected apart from keys.
  [[nodiscard]] int value_width() const { return latent ? 0 : kv_heads * value_dim; }
  /// The width of the attention output, which the output projection takes.
  [[nodiscard]] int attended_width() const { return heads * value_dim; }
  [[nodiscard]] int output_width() const {
    return heads * (latent ? latent->value_dim : value_dim);
  }

  bool operator==(const AttentionSpec&) const = default;
};

}  // namespace winnow::model
