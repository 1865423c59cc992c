// The properties of a model that its cache needs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "kvcache/recurrent_state.h"
#include "ops/kv_page.h"

namespace winnow::kvcache {

struct Calibration;

/// The KV heads of a layer, and the query heads of each.
struct LayerHeads {
  int kv_heads = 0;
  int group = 0;

  bool operator==(const LayerHeads&) const = default;
};

/// How a layer's queries and keys were rotated (ops::RopeAngles). No frequencies: not rotated.
struct LayerRope {
  std::vector<float> frequencies;
  bool interleaved = false;

  /// The two channels of a plane.
  [[nodiscard]] std::pair<std::size_t, std::size_t> channels_of(std::size_t plane) const {
    return interleaved ? std::pair(2 * plane, 2 * plane + 1)
                       : std::pair(plane, plane + frequencies.size());
  }
};

struct CacheShape {
  int layers = 0;  // layers that hold entries; recurrent layers do not count
  int kv_heads = 0;
  int head_dim = 0;       // of the widest heads; narrower ones are padded with zeros
  int group = 0;          // query heads per KV head
  float scale = 0.0F;     // factor of the scores; 0: 1 / sqrt(head_dim)
  float soft_cap = 0.0F;  // as in ops::AttentionShape
  bool sinks = false;     // query heads have sinks (ops::DecodeRow)
  bool joint = false;     // values are the unchanged keys: pages hold them once
  int key_only = 0;       // joint: the number of first channels whose attention output is not read
  /// By layer: a query sees the last `reach` tokens, its own included (a sliding window), or all of
  /// them (0, a full layer). Empty: all layers are full.
  std::vector<int> reach = {};
  /// The layers with a `reach` use chunked attention instead: a query sees the tokens of its own
  /// chunk of `reach` positions, those with the same position / reach.
  bool chunked = false;
  StateShape states = {};  // the states of recurrent layers
  /// By layer, where layers differ; empty: all have `kv_heads` and `group`.
  std::vector<LayerHeads> heads = {};
  std::vector<LayerRope> ropes = {};  // by layer; empty: no layer rotates
  /// By KV head, an index over all layers: the ranks whose memory holds it. Empty: one each.
  std::vector<int> holders = {};
  /// Statistics of the model's queries, for rules that need them.
  std::shared_ptr<const Calibration> calibration = nullptr;

  /// The factor of q . k.
  [[nodiscard]] float score_scale() const {
    return scale > 0.0F ? scale : 1.0F / std::sqrt(static_cast<float>(head_dim));
  }
  [[nodiscard]] ops::PageLayout page_layout(ops::EntryFormat format) const {
    return {format, head_dim, joint};
  }
  [[nodiscard]] int kv_heads_of(int layer) const {
    return heads.empty() ? kv_heads : heads[static_cast<std::size_t>(layer)].kv_heads;
  }
  [[nodiscard]] int group_of(int layer) const {
    return heads.empty() ? group : heads[static_cast<std::size_t>(layer)].group;
  }
  /// The most KV heads of any layer.
  [[nodiscard]] int most_kv_heads() const {
    int most = kv_heads;
    for (const LayerHeads& of_layer : heads) {
      most = std::max(most, of_layer.kv_heads);
    }
    return most;
  }
  [[nodiscard]] int most_group() const {
    int most = group;
    for (const LayerHeads& of_layer : heads) {
      most = std::max(most, of_layer.group);
    }
    return most;
  }
  /// The number of KV heads in the layers before `layer`; in all layers if it is `layers`.
  [[nodiscard]] int heads_before(int layer) const {
    int before = heads.empty() ? layer * kv_heads : 0;
    for (int i = 0; i < layer && !heads.empty(); ++i) {
      before += heads[static_cast<std::size_t>(i)].kv_heads;
    }
    return before;
  }
  [[nodiscard]] int all_heads() const { return heads_before(layers); }
  /// KV heads in memory: those in [begin, end), as often as ranks hold them.
  [[nodiscard]] int held_heads(int begin, int end) const {
    return holders.empty() ? end - begin
                           : std::accumulate(holders.begin() + begin, holders.begin() + end, 0);
  }
  [[nodiscard]] int held_heads() const { return held_heads(0, all_heads()); }
  /// The layer of KV head `head`, an index over all layers.
  [[nodiscard]] int layer_of(int head) const {
    int layer = heads.empty() ? head / kv_heads : 0;
    for (int left = head; !heads.empty() && left >= kv_heads_of(layer); ++layer) {
      left -= kv_heads_of(layer);
    }
    return layer;
  }

  /// Layers without a sliding window among the first `layer`.
  [[nodiscard]] int full_layers_before(int layer) const {
    return reach.empty() ? layer
                         : static_cast<int>(std::count(reach.begin(), reach.begin() + layer, 0));
  }
  [[nodiscard]] int reach_of(int layer) const {
    return reach.empty() ? 0 : reach[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] const LayerRope& rope_of(int layer) const {
    static const LayerRope kNone;
    return ropes.empty() ? kNone : ropes[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] bool has_sliding_layers() const {
    return std::ranges::any_of(reach, [](int tokens) { return tokens > 0; });
  }
  /// Entries that a head of a layer holds after `length` tokens in a dense cache.
  [[nodiscard]] int dense_entries(int layer, int length) const {
    const int most = reach_of(layer);
    if (most == 0 || length <= most) {
      return length;
    }
    return chunked ? (length - 1) % most + 1 : most;
  }
  /// The same, summed over layers and heads.
  [[nodiscard]] std::int64_t dense_entries(int length) const {
    std::int64_t entries = 0;
    for (int layer = 0; layer < layers; ++layer) {
      entries += std::int64_t{kv_heads_of(layer)} * dense_entries(layer, length);
    }
    return entries;
  }
};

/// Throws Error unless `reach` is empty or has a value for every layer.
void validate(const CacheShape& shape);

}  // namespace winnow::kvcache
