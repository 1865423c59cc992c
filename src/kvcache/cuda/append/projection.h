// From a layer's q, k, v products to attention and cache: bias, q/k-norm, decision, RoPE.
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
  bool evicts = true;      // else nothing is evicted
  float scale = 0.0F;      // evict iff scale * x - offset > 0
  float offset = 0.0F;
  // channel: x is this channel of the group's first query head, which is then cleared.
  int channel = 0;
  bool clear_after_rope = false;
  // merge: the key is merged iff its `channel` - offset > 0; its weight is the sigmoid of that
  // channel of the group's first query head. Both are then cleared.
  int pooled = 0;  // merge: if not 0, a token is merged iff its position is not a multiple
  // probe: x = projection [outputs, width] . rms_norm(hidden [tokens, width]) + bias [outputs]
  const float* hidden = nullptr;
  const float* norm = nullptr;  // or null: hidden is not normed
  const float* projection = nullptr;
  const float* bias = nullptr;  // or null
  int width = 0;
  float eps = 0.0F;
  bool is_drawn = false;  // decisions come from `drawn` instead
  DrawnDecisions drawn;

  /// The logit of the DMS decision for x, and the decision.
  [[nodiscard]] constexpr float logit(float x) const { return scale * x - offset; }
  [[nodiscard]] constexpr bool decides(float x) const { return evicts && logit(x) > 0.0F; }
};

/// A token's decision, and its logit under DMS.
struct Decision {
  bool taken;
  float logit;
};

/// Queries are multiplied by 1 + growth * log(1 + floor((position + first) / period)).
struct QueryGrowth {
  float growth = 0.0F;
  int period = 1;
  int first = 0;
};

/// The most query heads of a KV head that a block handles, one per warp, together with key and
/// value. Blocks of their own handle the others.
inline constexpr int kMostQueryWarps = 30;

/// How a token's q, k and v [columns() * head_dim], q first, are processed.
struct Projection {
  int kv_heads = 0;
  int group = 0;
  int head_dim = 0;                   // 0: the cache's; else at most that, padded with zeros
  bool queries_alone = false;         // the layer attends to another layer's entries
  bool values_are_keys = false;       // the projection's keys are the values, too
  const float* bias = nullptr;        // [columns() * head_dim] or null
  const float* query_norm = nullptr;  // [head_dim] or null
  const float* key_norm = nullptr;
  const float* value_norm = nullptr;
  float eps = 0.0F;
  bool own_norms = false;         // query_norm and key_norm have a part for each head
  bool norms_center = false;      // LayerNorm; else RMSNorm
  bool norms_after_rope = false;  // else before it
  /// The number of first channels of a head that RoPE rotates; 0: none; negative: all.
  int rotary = -1;
  int angle_planes = 0;            // planes per token in `angles`; 0: half of the rotated channels
  bool interleaved = false;        // RoPE rotates channels 2i and 2i + 1; else i and i + half
  const float2* angles = nullptr;  // [tokens, angle_planes] cosine and sine
  QueryGrowth query_growth;
  DecisionSource decision;

  /// The number of a block's warps that handle a query head.
  [[nodiscard]] constexpr int query_warps() const {
    return group < kMostQueryWarps ? group : kMostQueryWarps;
  }
  /// Heads in the layer's products.
  [[nodiscard]] constexpr int columns() const {
    return kv_heads * (group + (queries_alone ? 0 : values_are_keys ? 1 : 2));
  }
  /// Whether heads, norms and RoPE are as in Llama and Qwen: the cache's head_dim, norms per head,
  /// and RoPE of whole heads in halves.
  [[nodiscard]] constexpr bool is_plain() const {
    return rotary < 0 && !interleaved && !own_norms && !norms_center && !norms_after_rope &&
           head_dim == 0 && !queries_alone && !values_are_keys && value_norm == nullptr;
  }
};

}  // namespace winnow::kvcache::cuda
