#include "eval/attention_distance.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/host_memory.h"
#include "kvcache/sequence_cache.h"

namespace winnow::eval {
namespace {

// Distances 0, 1, 2-3, 4-7 ... go into bins 0, 1, 2, 3 ...
std::size_t bin_of(int distance) {
  return std::bit_width(static_cast<unsigned>(distance));
}

// Adds the weights [query heads, seen] of the query at t, which sees the last `seen` tokens: the
// weight of position p is at p % seen.
void add_query(std::span<const float> weights, int t, int seen, int query_heads,
               std::span<double> shares) {
  const auto width = static_cast<std::size_t>(seen);
  for (int query = 0; query < query_heads; ++query) {
    const auto row = weights.subspan(static_cast<std::size_t>(query) * width, width);
    for (int position = t + 1 - seen; position <= t; ++position) {
      (position == 0 ? shares.back() : shares[bin_of(t - position)]) +=
          row[static_cast<std::size_t>(position % seen)];
    }
  }
}

}  // namespace

std::vector<double> AttentionDistance::mean() const {
  std::vector<double> sums(first.size() + 1, 0.0);
  for (int head = 0; head < heads; ++head) {
    const auto row = of_head(head);
    for (std::size_t bin = 0; bin < row.size(); ++bin) {
      sums[bin] += row[bin] / heads;
    }
  }
  return sums;
}

AttentionDistance measure_attention_distance(const engine::LoadedModel& model,
                                             std::span<const std::int32_t> tokens,
                                             const std::function<bool(std::int64_t)>& on_progress) {
  require(model.team == nullptr,
          "--tensor-parallel: the distance of attention is measured on one rank only");
  const kvcache::CacheShape shape = model.cache_shape();
  const auto length = static_cast<int>(tokens.size());
  require(length >= 2, "the text has {} tokens: at least 2 are needed", length);
  require(length <= model.spec().max_positions, "{} tokens are more than the model's {} positions",
          length, model.spec().max_positions);
  kvcache::CacheConfig dense;
  dense.format = model.engine.cache.format;
  dense.max_bytes = std::min(model.engine.cache.max_bytes, total_host_memory());
  kvcache::Cache cache(dense, shape);
  kvcache::SequenceCache sequence(cache, {1, length});
  ops::Workspace workspace;
  ops::Context context{model.engine.compute, model.engine.deterministic, &workspace};

  AttentionDistance result;
  result.heads = shape.all_heads();
  const std::size_t bins = bin_of(length - 1) + 1;
  for (std::size_t bin = 0; bin < bins; ++bin) {
    result.first.push_back(bin == 0 ? 0 : 1 << (bin - 1));
  }
  result.shares.assign(static_cast<std::size_t>(result.heads) * (bins + 1), 0.0);
  const auto row = static_cast<std::size_t>(shape.kv_heads * shape.group * length);
  std::vector<float> memory(static_cast<std::size_t>(shape.layers) * row);
  const ops::Matrix<float> weights{memory.data(), static_cast<std::size_t>(shape.layers), row, row};
  int queries = 0;
  for (int t = 0; t < length; ++t) {
    require(cache.has_pages(sequence.page_need(1)),
            "the cache is full after {} tokens: allow it more memory with --kv-gib", t);
    const model::SequenceStep step{
        &sequence, tokens.subspan(static_cast<std::size_t>(t), 1), 0, {}, weights};
    model.model.forward(context, std::span(&step, 1), {});
    for (int head = 0; head < result.heads && t >= length / 2; ++head) {
      const int layer = shape.layer_of(head);
      const int group = shape.group_of(layer);
      const int seen = shape.dense_entries(layer, t + 1);
      const auto per_head = static_cast<std::size_t>(group * seen);
      const auto within = static_cast<std::size_t>(head - shape.heads_before(layer));
      add_query(
          weights.row(static_cast<std::size_t>(layer)).subspan(within * per_head, per_head), t,
          seen, group,
          std::span(result.shares).subspan(static_cast<std::size_t>(head) * (bins + 1), bins + 1));
    }
    queries += t >= length / 2 ? 1 : 0;
    if (on_progress && !on_progress(t + 1)) {
      break;
    }
  }
  if (queries == 0) {
    return {};
  }
  for (double& share : result.shares) {
    share /= static_cast<double>(queries) * shape.group;
  }
  return result;
}

}  // namespace winnow::eval
