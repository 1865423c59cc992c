// Expected Attention (Devoto et al. 2025), as KVPress implements it. The prompt is read in full. At
// its end each head keeps the first tokens. Of the other tokens it keeps those with the highest
// product of expected attention from later queries and L2 norm of the value. The answer is kept.
//
// Later queries are assumed to be normal, with the mean and covariance of the prompt's queries
// before RoPE, and rotated by the mean rotation of the next 512 positions. A key's expected weight
// is then exp(s mean . k + s^2 k covariance k / 2), where s is the scale of scores. These weights
// are normalised over the prompt and averaged over the group's query heads. Soft caps and sinks of
// scores are ignored. If queries are normed after RoPE, only the rotation is undone.
#include "kvcache/eviction/expected_attention.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "kvcache/cache_shape.h"
#include "kvcache/eviction/snapkv.h"
#include "kvcache/head_cache.h"
#include "kvcache/rule.h"
#include "kvcache/undo_rope.h"
#include "ops/cpu/linear/small_gemm.h"
#include "ops/kv_page.h"
#include "ops/rope.h"
#include "ops/rotation.h"

namespace winnow::kvcache {
namespace {

std::size_t channels_of(const ScoredLayer& layer) {
  return static_cast<std::size_t>(layer.shape.head_dim);
}

std::size_t group_size(const ScoredLayer& layer) {
  return static_cast<std::size_t>(layer.shape.group_of(layer.layer));
}

// The size of HeadCache::query_statistics(): for each query head the mean [d], and the sum of outer
// products [d, d] of the deviations from the mean.
std::size_t query_numbers(const ScoredLayer& layer) {
  return group_size(layer) * channels_of(layer) * (1 + channels_of(layer));
}

// Freed at the end of the prompt.
std::size_t noted_in_prompt(const ScoredLayer& layer, int length) {
  return length < layer.rule.prompt_tokens && counts_query(layer.rule, length - 1)
             ? query_numbers(layer)
             : 0;
}

const LayerRope& rope_of(const ScoredLayer& layer) {
  return layer.shape.rope_of(layer.layer);
}

// Adds a query: mean and products by Welford's update, which stays accurate for large means.
void add_query(std::span<float> numbers, std::span<const float> query, int count) {
  const std::size_t channels = query.size();
  const auto mean = numbers.first(channels);
  std::vector<float> beside(channels);
  std::vector<float> shrunk(channels);
  const float share = 1.0F / static_cast<float>(count);
  for (std::size_t d = 0; d < channels; ++d) {
    beside[d] = query[d] - mean[d];
    shrunk[d] = beside[d] * (1.0F - share);
    mean[d] += beside[d] * share;
  }
  ops::cpu::add_product({numbers.data() + channels, channels, channels}, {beside.data(), 1, 1},
                        {shrunk.data(), 1, channels});
}

void note_query(const ScoredLayer& layer, HeadCache& head, std::span<const float> queries) {
  const int position = head.length() - 1;
  if (!counts_query(layer.rule, position)) {
    return;
  }
  const std::size_t channels = channels_of(layer);
  std::vector<float> plain(queries.begin(), queries.end());
  for (std::size_t first = 0; first < plain.size() && head.archive().pool().layout().rotated();
       first += channels) {
    ops::rotate_back(std::span(plain).subspan(first, channels));
  }
  undo_rope(rope_of(layer), layer.shape.head_dim, position, plain);
  head.query_statistics().resize(query_numbers(layer));
  const std::size_t numbers = channels * (1 + channels);
  for (std::size_t g = 0; g < group_size(layer); ++g) {
    add_query(std::span(head.query_statistics()).subspan(g * numbers, numbers),
              std::span(plain).subspan(g * channels, channels), position - kExpectedSinks + 1);
  }
}

// The mean rotation of the positions to come.
class MeanRotation {
 public:
  explicit MeanRotation(const ScoredLayer& layer)
      : rope_(rope_of(layer)), cosines_(rope_.frequencies.size()), sines_(cosines_.size()) {
    std::vector<std::int32_t> positions(kFuturePositions);
    std::iota(positions.begin(), positions.end(), layer.rule.prompt_tokens);
    ops::RopeAngles angles;
    angles.compute(rope_.frequencies, positions);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      for (std::size_t plane = 0; plane < cosines_.size(); ++plane) {
        cosines_[plane] += angles.cosines(i)[plane] / kFuturePositions;
        sines_[plane] += angles.sines(i)[plane] / kFuturePositions;
      }
    }
  }

  /// The transpose: (R q) . k = q . (R^T k), so that keys can be multiplied with unrotated queries.
  void transpose_times(std::span<float> key) const {
    for (std::size_t plane = 0; plane < cosines_.size(); ++plane) {
      const auto [first_channel, second_channel] = rope_.channels_of(plane);
      float& a = key[first_channel];
      float& b = key[second_channel];
      const float first = a;
      a = cosines_[plane] * first + sines_[plane] * b;
      b = cosines_[plane] * b - sines_[plane] * first;
    }
  }

 private:
  const LayerRope& rope_;
  std::vector<float> cosines_;  // by plane
  std::vector<float> sines_;
};

// The prompt's entries after the first tokens. No entry was dropped yet, so slots are positions.
struct PromptEntries {
  std::vector<float> keys;         // [entries, d], rotated to match queries before RoPE
  std::vector<float> value_norms;  // [entries]
};

PromptEntries load_prompt(const ScoredLayer& layer, const HeadCache& head) {
  const std::size_t channels = channels_of(layer);
  const auto& layout = head.archive().pool().layout();
  const MeanRotation rotation(layer);
  PromptEntries entries;
  std::vector<float> key(channels);
  std::vector<float> value(channels);
  for (int slot = kExpectedSinks; slot < head.archive().size(); ++slot) {
    const auto place = head.archive().at(slot);
    ops::load_entry(layout, place.page, place.slot, key, value);
    if (layout.rotated()) {
      ops::rotate_back(key);
      ops::rotate_back(value);
    }
    rotation.transpose_times(key);
    entries.keys.insert(entries.keys.end(), key.begin(), key.end());
    const auto read = std::span(value).subspan(static_cast<std::size_t>(layer.shape.key_only));
    entries.value_norms.push_back(
        std::sqrt(std::inner_product(read.begin(), read.end(), read.begin(), 0.0F)));
  }
  return entries;
}

// softmax(s mean . k + s^2 k (products / count) k / 2) over keys.
std::vector<float> expected_weights(std::span<const float> keys, std::span<const float> numbers,
                                    std::size_t channels, float scale) {
  constexpr std::size_t kRows = 64;
  const std::size_t count = keys.size() / channels;
  const float half = 0.5F * scale * scale / static_cast<float>(count);
  const float* mean = numbers.data();
  const ops::Matrix<const float> products(numbers.data() + channels, channels, channels);
  std::vector<float> weights(count);
  std::vector<float> block(kRows * channels);
  for (std::size_t begin = 0; begin < count; begin += kRows) {
    const std::size_t rows = std::min(kRows, count - begin);
    std::ranges::fill(block, 0.0F);
    ops::cpu::add_product({block.data(), rows, channels},
                          {keys.data() + begin * channels, channels, 1}, products);
    for (std::size_t r = 0; r < rows; ++r) {
      const auto key = keys.subspan((begin + r) * channels, channels);
      const float linear = std::inner_product(key.begin(), key.end(), mean, 0.0F);
      const float square =
          std::inner_product(key.begin(), key.end(), block.data() + r * channels, 0.0F);
      weights[begin + r] = scale * linear + half * square;
    }
  }
  const float largest = *std::ranges::max_element(weights);
  std::ranges::transform(weights, weights.begin(),
                         [largest](float x) { return std::exp(x - largest); });
  const float sum = std::accumulate(weights.begin(), weights.end(), 0.0F);
  std::ranges::transform(weights, weights.begin(), [sum](float x) { return x / sum; });
  return weights;
}

void expect_attention(const ScoredLayer& layer, const HeadCache& head, std::span<float> scores) {
  if (scores.size() <= kExpectedSinks) {
    return;  // no query counted: `spares` alone decides
  }
  const std::size_t channels = channels_of(layer);
  const PromptEntries entries = load_prompt(layer, head);
  const auto expected = scores.subspan(kExpectedSinks);
  const float scale = layer.shape.score_scale();
  const std::size_t numbers = channels * (1 + channels);
  for (std::size_t g = 0; g < group_size(layer); ++g) {
    const auto weights = expected_weights(
        entries.keys, std::span(head.query_statistics()).subspan(g * numbers, numbers), channels,
        scale);
    std::ranges::transform(expected, weights, expected.begin(), std::plus<>());
  }
  std::ranges::transform(expected, entries.value_norms, expected.begin(), std::multiplies<>());
}

// Entries are dropped at the end of the prompt only, so that the answer stays.
Spared spare_first(const Rule& rule) {
  return {.first = std::min(kExpectedSinks, rule.budget)};
}

}  // namespace

const Eviction kExpectedAttentionEviction{.held_after = hold_part_of_prompt,
                                          .forgets = true,
                                          .note_queries = note_query,
                                          .noted_after = noted_in_prompt,
                                          .spares = spare_first,
                                          .score = expect_attention,
                                          .device_score = DeviceScore::expected_attention};

}  // namespace winnow::kvcache
