// What TriAttention expects of the queries to come, from statistics of the model's queries.
#pragma once

#include <vector>

#include "kvcache/cache_shape.h"

namespace winnow::kvcache {

/// A query head's statistics, rotated like the cached keys. The score of a key is the product with
/// `mean`, plus the sum over the planes of RoPE (plane_lengths()) of `excess` times its length.
struct FutureQueries {
  std::vector<double> mean;    // [head_dim], averaged over the rotations of future positions
  std::vector<double> excess;  // [planes]: mean length of the queries minus length of the mean
};

/// Those of query heads [first, first + count) of a layer after `length` tokens.
std::vector<FutureQueries> expect_queries(const CacheShape& shape, int layer, int length, int first,
                                          int count);

/// The least standard deviation by which scores are divided.
inline constexpr double kLeastDeviation = 1e-6;

}  // namespace winnow::kvcache
