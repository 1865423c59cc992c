#include "engine/calibrate.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "kvcache/undo_rope.h"

namespace winnow::engine {
namespace {

// A layer's statistics while they are summed.
class QuerySums {
 public:
  QuerySums(const kvcache::CacheShape& shape, int layer)
      : rope_(shape.rope_of(layer)),
        dim_(static_cast<std::size_t>(shape.head_dim)),
        planes_(kvcache::plane_count(shape, layer)),
        means_(static_cast<std::size_t>(shape.kv_heads_of(layer) * shape.group_of(layer)) * dim_),
        lengths_(means_.size() / dim_ * planes_) {}

  /// Adds the queries of the next tokens, those after the tokens added before.
  void add(ops::Matrix<const float> queries) {
    std::vector<float> plain(means_.size());
    std::vector<float> lengths(planes_);
    for (std::size_t t = 0; t < queries.rows; ++t, ++tokens_) {
      std::ranges::copy(queries.row(t), plain.begin());
      kvcache::undo_rope(rope_, static_cast<int>(dim_), tokens_, plain);
      std::ranges::transform(means_, plain, means_.begin(), std::plus<>());
      for (std::size_t head = 0; head < means_.size() / dim_; ++head) {
        kvcache::plane_lengths(rope_, std::span(plain).subspan(head * dim_, dim_), lengths);
        const auto sums = std::span(lengths_).subspan(head * planes_, planes_);
        std::ranges::transform(sums, lengths, sums.begin(), std::plus<>());
      }
    }
  }

  [[nodiscard]] kvcache::LayerCalibration averages() const {
    const auto average = [this](const std::vector<double>& sums) {
      std::vector<float> result;
      for (const double sum : sums) {
        result.push_back(static_cast<float>(sum / tokens_));
      }
      return result;
    };
    return {.means = average(means_), .lengths = average(lengths_)};
  }

 private:
  const kvcache::LayerRope& rope_;
  std::size_t dim_;
  std::size_t planes_;
  std::vector<double> means_;    // [heads, dim]
  std::vector<double> lengths_;  // [heads, planes]
  std::int32_t tokens_ = 0;
};

}  // namespace

kvcache::Calibration calibrate(const Backend& backend, const EngineConfig& config,
                               std::span<const std::int32_t> tokens,
                               const std::function<void(std::size_t)>& on_step) {
  const kvcache::CacheShape shape = backend.cache_shape();
  std::vector<QuerySums> sums;
  for (int layer = 0; layer < shape.layers; ++layer) {
    sums.emplace_back(shape, layer);
  }
  const model::AttentionListener listener = [&](const model::AttentionInputs& inputs) {
    sums[static_cast<std::size_t>(inputs.place)].add(inputs.queries);
  };
  const auto count = static_cast<int>(tokens.size());
  const auto runner = backend.make_runner(config, count);
  const auto sequence = runner->open({.prompt_tokens = count, .total_tokens = count});
  const auto most = static_cast<std::size_t>(config.step_tokens);
  for (std::size_t first = 0; first < tokens.size(); first += most) {
    const auto chunk = tokens.subspan(first, std::min(most, tokens.size() - first));
    require(runner->has_room(runner->need(*sequence, static_cast<int>(chunk.size()))),
            "the cache is full after {} tokens: take fewer, with --max-tokens", first);
    SequenceShare share{
        .sequence = sequence.get(), .tokens = chunk, .logit_rows = 0, .visible = {}};
    share.listener = &listener;
    runner->forward(std::span(&share, 1), {}, {});
    if (on_step) {
      on_step(first + chunk.size());
    }
  }
  kvcache::Calibration calibration;
  std::ranges::transform(sums, std::back_inserter(calibration.layers), &QuerySums::averages);
  return calibration;
}

}  // namespace winnow::engine
