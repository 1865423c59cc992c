#include "model/shard_calibration.h"

#include <cstddef>
#include <vector>

namespace winnow::model {
namespace {

// The rows of `heads` of a matrix that has a row for each of `all` heads.
std::vector<float> rows_of(const std::vector<float>& matrix, const Range& heads, int all) {
  const auto cols = static_cast<std::ptrdiff_t>(matrix.size()) / all;
  return {matrix.begin() + heads.begin * cols, matrix.begin() + heads.end * cols};
}

}  // namespace

kvcache::Calibration shard_calibration(const kvcache::Calibration& calibration,
                                       const ModelSpec& whole, const Shard& shard) {
  kvcache::Calibration part;
  auto from = calibration.layers.begin();
  for (const LayerSpec& layer : whole.layers) {
    if (layer.stores()) {
      const AttentionSpec& attention = *layer.attention();
      const Range heads = share_of_queries(attention, shard);
      part.layers.push_back({.means = rows_of(from->means, heads, attention.heads),
                             .lengths = rows_of(from->lengths, heads, attention.heads)});
      ++from;
    }
  }
  return part;
}

}  // namespace winnow::model
