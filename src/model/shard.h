// The part of a model that one of several ranks computes (tensor parallelism, Shoeybi et al. 2019):
// some KV heads with their queries, or some queries of one KV head, some columns of each
// feed-forward network, some rows of the vocabulary. What the ranks' output projections give adds
// up to what the whole model's would.
#pragma once

#include <cstdint>
#include <vector>

#include "model/spec.h"

namespace winnow::model {

/// Place `rank` of `ranks`.
struct Shard {
  int rank = 0;
  int ranks = 1;

  [[nodiscard]] bool is_whole() const { return ranks == 1; }
  bool operator==(const Shard&) const = default;
};

/// [begin, end) of what is numbered from 0.
struct Range {
  int begin = 0;
  int end = 0;

  [[nodiscard]] int size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// A rank's share of `total` things, in multiples of `unit`, which divides `total`: ranks differ by
/// one unit at most.
Range share_of(int total, const Shard& shard, int unit = 1);

/// The same of the width of a feed-forward network: groups of quantised weights stay whole where
/// that can be, in the largest units that then give ranks equal shares.
Range share_of_width(int width, const Shard& shard);

/// A rank's KV heads in a layer.
struct HeadShare {
  Range kv_heads;
  /// Where ranks outnumber KV heads, each rank has one, and this is its place among those that hold
  /// the same one. They compute the same entries for it, and attention for parts of its queries.
  Shard holders;

  /// Whether it stands for its KV heads wherever each counts once.
  [[nodiscard]] bool is_first() const { return holders.rank == 0; }
};

HeadShare share_of_kv_heads(int kv_heads, const Shard& shard);

/// The number of ranks that hold KV head `head`.
int holders_of(int head, int kv_heads, int ranks);

/// The rank's query heads of a layer.
Range share_of_queries(const AttentionSpec& whole, const Shard& shard);

/// The rank's KV heads in a layer; of a recurrent mixer, its key heads.
Range share_of_heads(const LayerSpec& layer, const Shard& shard);

/// Of the numbers that a recurrent layer keeps of a sequence (RecurrentSpec::state_size), those
/// that the rank keeps, in its order.
std::vector<Range> share_of_state(const RecurrentSpec& recurrent, const Shard& shard);

/// Those of queries, keys and values that pass the convolution, in its order.
std::vector<Range> share_of_channels(const RecurrentSpec& recurrent, const Shard& shard);

/// The description of what the rank computes: of fewer heads, columns and tokens. Throws Error that
/// names what cannot be split over so many ranks.
ModelSpec shard_spec(const ModelSpec& whole, const Shard& shard);

}  // namespace winnow::model
