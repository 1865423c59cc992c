// From a layer's q, k, v products to what attention and cache take: bias, q/k-norm, decision, RoPE.
#pragma once

#include <vector_types.h>

#include <cstdint>

#include "kvcache/drawn_decisions.h"

namespace winnow::kvcache::cuda {

/// Where a layer's decisions come from (docs/method.md, DMS and DMC).
struct DecisionSource {
  enum class Kind : std::uint8_t { none, channel, probe, merge };
  Kind kind = Kind::none;
  bool per_layer = false;  // KV head 0 decides for all
  float scale = 0.0F;      // evict iff scale * x - offset > 0
  float offset = 0.0F;
  // channel: x is this channel of the group's first query head, which is then cleared.
  int channel = 0;
  bool clear_after_rope = false;
  // merge: the key is merged iff its `channel` - offset > 0; its weight is the sigmoid of that
  // channel of the group's first query head. Both are then cleared.
  int pooled = 0;  // merge: if not 0, merged iff it does not divide the position
  // probe: x = projection [outputs, width] . rms_norm(hidden [tokens, width]) + bias [outputs]
  const float* hidden = nullptr;
  const float* norm = nullptr;  // or null: hidden as it is
  const float* projection = nullptr;
  const float* bias = nullptr;  // or null
  int width = 0;
  float eps = 0.0F;
  bool is_drawn = false;  // instead
  DrawnDecisions drawn;

  /// DMS's decision that follows from x.
  [[nodiscard]] constexpr bool decides(float x) const { return scale * x - offset > 0.0F; }
};

/// Queries are multiplied by 1 + growth * log(1 + floor((position + first) / period)).
struct QueryGrowth {
  float growth = 0.0F;
  int period = 1;
  int first = 0;
};

/// Query heads of a KV head that a block takes, a warp each, beside key and value. Further ones are
/// taken by blocks of their own.
inline constexpr int kMostQueryWarps = 30;

/// What is done to a token's q, k and v [columns() * head_dim], q first.
struct Projection {
  int kv_heads = 0;
  int group = 0;
  int head_dim = 0;                   // 0: the cache's; else up to that, filled up with zeros
  bool queries_alone = false;         // the layer attends to entries that another one has stored
  bool values_are_keys = false;       // what the product gives for keys, too
  const float* bias = nullptr;        // [columns() * head_dim] or null
  const float* query_norm = nullptr;  // [head_dim] or null
  const float* key_norm = nullptr;
  const float* value_norm = nullptr;
  float eps = 0.0F;
  bool own_norms = false;         // each head has a part of query_norm, key_norm of its own
  bool norms_center = false;      // LayerNorm; else RMSNorm
  bool norms_after_rope = false;  // else before it
  /// Channels of a head that RoPE turns, the first ones; 0: none; negative: all.
  int rotary = -1;
  int angle_planes = 0;            // of a token in `angles`; 0: half of the channels that turn
  bool interleaved = false;        // channels 2i and 2i + 1 turn together; else i and i + half
  const float2* angles = nullptr;  // [tokens, angle_planes] cosine and sine
  QueryGrowth query_growth;
  DecisionSource decision;

  /// Warps of a block that take a query head.
  [[nodiscard]] constexpr int query_warps() const {
    return group < kMostQueryWarps ? group : kMostQueryWarps;
  }
  /// Heads that the product gives.
  [[nodiscard]] constexpr int columns() const {
    return kv_heads * (group + (queries_alone ? 0 : values_are_keys ? 1 : 2));
  }
  /// Whether heads, norms and RoPE are those of Llama and Qwen: as the cache has them, per head,
  /// and of whole heads in halves.
  [[nodiscard]] constexpr bool is_plain() const {
    return rotary < 0 && !interleaved && !own_norms && !norms_center && !norms_after_rope &&
           head_dim == 0 && !queries_alone && !values_are_keys && value_norm == nullptr;
  }
};

}  // namespace winnow::kvcache::cuda
