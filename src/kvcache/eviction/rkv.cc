// R-KV (Cai et al. 2025): the prompt is read in full. At its end, if it reaches the budget, and
// whenever the answer fills the budget, each head keeps (budget - buffer) entries and drops those
// with the lowest lambda importance - (1 - lambda) redundancy. The newest tokens (window) stay.
//
// Importance is attention from the window's queries to the entries before the window: the softmax
// over these entries of the largest logit of the group's query heads, averaged over the queries and
// max-pooled over neighbours. Redundancy is the softmax of an entry's mean cosine similarity with
// the others. Each key leaves out the newest key that is similar to it, so that one of them stays.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "kvcache/eviction/eviction.h"
#include "kvcache/eviction/rkv.h"
#include "kvcache/eviction/rounds.h"
#include "kvcache/head_cache.h"
#include "kvcache/rule.h"
#include "ops/attention.h"
#include "ops/cpu/linear/small_gemm.h"
#include "ops/kv_page.h"

namespace winnow::kvcache {
namespace {

constexpr int kRkvWindow = 8;  // of the paper; small budgets have a smaller one

int rkv_window(const Rule& rule) {
  return std::min({kRkvWindow, round_size(rule), kept_of_round(rule) / 2});
}

int hold_up_to_budget(const Rule& rule, int length) {
  if (length < rule.prompt_tokens) {
    return length;
  }
  const int of_prompt =
      rule.prompt_tokens >= rule.budget ? kept_of_round(rule) : rule.prompt_tokens;
  return held_in_rounds(rule, of_prompt + length - rule.prompt_tokens);
}

bool drops_at(const Rule& rule, int length) {
  return hold_up_to_budget(rule, length) <= hold_up_to_budget(rule, length - 1);
}

// The length at which entries are dropped, if `position` is in the window before that; or 0.
int drops_next(const Rule& rule, int position) {
  for (int length = position + 1; length <= position + rkv_window(rule); ++length) {
    if (drops_at(rule, length)) {
      return length;
    }
  }
  return 0;
}

bool is_before_drops(const Rule& rule, int position) {
  return drops_next(rule, position) > 0;
}

std::vector<float> load_key(const EntryList& archive, std::size_t slot) {
  const auto& layout = archive.pool().layout();
  std::vector<float> key(static_cast<std::size_t>(layout.head_dim()));
  std::vector<float> value(key.size());
  const auto place = archive.at(static_cast<int>(slot));
  ops::load_entry(layout, place.page, place.slot, key, value);
  return key;
}

// Slots of entries before position `end`, ordered by position.
std::vector<std::size_t> slots_before(const SlotScores& scores, int end) {
  std::vector<std::size_t> slots;
  for (std::size_t slot = 0; slot < scores.size(); ++slot) {
    if (scores.position(slot) < end) {
      slots.push_back(slot);
    }
  }
  std::ranges::sort(slots, {}, [&](std::size_t slot) { return scores.position(slot); });
  return slots;
}

void softmax(std::span<float> x) {
  const float largest = *std::ranges::max_element(x);
  std::ranges::transform(x, x.begin(), [&](float v) { return std::exp(v - largest); });
  const float sum = std::accumulate(x.begin(), x.end(), 0.0F);
  std::ranges::transform(x, x.begin(), [&](float v) { return v / sum; });
}

void observe_largest_logits(const Rule& rule, HeadCache& head, const ops::DecodeRow& row,
                            const ops::AttentionShape& shape) {
  const int window_begin = drops_next(rule, head.length() - 1) - rkv_window(rule);
  const auto past = slots_before(head.slots(), window_begin);
  if (past.empty()) {
    return;
  }
  std::vector<float> logits;
  for (const std::size_t slot : past) {
    const auto key = load_key(head.archive(), slot);
    float largest = -std::numeric_limits<float>::infinity();
    for (int g = 0; g < shape.group; ++g) {
      const float* query = row.query + static_cast<std::size_t>(g) * key.size();
      largest = std::max(largest, std::inner_product(key.begin(), key.end(), query, 0.0F));
    }
    const float logit = largest * shape.scale;
    logits.push_back(shape.soft_cap > 0.0F ? shape.soft_cap * std::tanh(logit / shape.soft_cap)
                                           : logit);
  }
  softmax(logits);
  for (std::size_t i = 0; i < past.size(); ++i) {
    head.slots().add_attention(past[i], logits[i] / static_cast<float>(rkv_window(rule)));
  }
}

// Keys of unit length as columns, in the order of `slots`; padded with zeros to a multiple of 8.
class UnitKeys {
 public:
  UnitKeys(const EntryList& archive, std::span<const std::size_t> slots)
      : channels_(static_cast<std::size_t>(archive.pool().layout().head_dim())),
        count_(slots.size()),
        stride_((slots.size() + 7) / 8 * 8),
        numbers_(channels_ * stride_) {
    for (std::size_t i = 0; i < count_; ++i) {
      const auto key = load_key(archive, slots[i]);
      const float norm = std::sqrt(std::inner_product(key.begin(), key.end(), key.begin(), 0.0F));
      for (std::size_t d = 0; d < channels_; ++d) {
        numbers_[d * stride_ + i] = key[d] / (norm + 1e-8F);
      }
    }
  }

  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::size_t padded_count() const { return stride_; }

  /// Cosine similarities of keys [begin, begin + out.rows) with all keys.
  void cosines(std::size_t begin, ops::Matrix<float> out) const {
    constexpr std::size_t kTile = 256;  // keys whose channels stay in the second-level cache
    std::fill_n(out.data, out.rows * out.stride, 0.0F);
    for (std::size_t first = 0; first < stride_; first += kTile) {
      const std::size_t columns = std::min(kTile, stride_ - first);
      ops::cpu::add_product({out.data + first, out.rows, columns, out.stride},
                            {numbers_.data() + begin, 1, stride_},
                            {numbers_.data() + first, channels_, columns, stride_});
    }
  }

 private:
  std::size_t channels_;
  std::size_t count_;
  std::size_t stride_;
  std::vector<float> numbers_;  // [channels, padded_count()]
};

// The redundancy of all keys, by position.
std::vector<float> redundancy_of(const UnitKeys& keys) {
  constexpr std::size_t kRows = 32;
  std::vector<float> sums(keys.count(), 0.0F);
  std::vector<float> block(kRows * keys.padded_count());
  for (std::size_t begin = 0; begin < keys.count(); begin += kRows) {
    const ops::Matrix<float> cosines(block.data(), std::min(kRows, keys.count() - begin),
                                     keys.padded_count());
    keys.cosines(begin, cosines);
    for (std::size_t r = 0; r < cosines.rows; ++r) {
      const auto similar = cosines.row(r).first(keys.count());
      similar[begin + r] = 0.0F;
      const auto newest =
          std::find_if(similar.rbegin(), similar.rend(), [](float x) { return x > kRkvSimilar; });
      if (newest != similar.rend()) {
        *newest = 0.0F;
      }
      std::ranges::transform(sums, similar, sums.begin(), std::plus<>());
    }
  }
  std::ranges::transform(sums, sums.begin(),
                         [&](float sum) { return sum / static_cast<float>(keys.count()); });
  softmax(sums);
  return sums;
}

void weigh_redundancy(const ScoredLayer& layer, const HeadCache& head, std::span<float> scores) {
  const SlotScores& slots = head.slots();
  const auto all = slots_before(slots, head.length());
  const auto past = slots_before(slots, head.length() - rkv_window(layer.rule));
  const auto redundancy = redundancy_of({head.archive(), all});
  for (std::size_t i = 0; i < past.size(); ++i) {
    float importance = 0.0F;
    const std::size_t beside = kRkvNeighbours;
    const std::size_t end = std::min(i + beside + 1, past.size());
    for (std::size_t j = i - std::min(i, beside); j < end; ++j) {
      importance = std::max(importance, slots.score(past[j]));
    }
    scores[past[i]] = kRkvLambda * importance - (1.0F - kRkvLambda) * redundancy[i];
  }
}

Spared spare_newest(const Rule& rule) {
  return {.newest = rkv_window(rule)};
}

}  // namespace

const Eviction kRkvEviction{.held_after = hold_up_to_budget,
                            .observes = is_before_drops,
                            .observe = observe_largest_logits,
                            .forgets = true,
                            .spares = spare_newest,
                            .score = weigh_redundancy,
                            .device_score = DeviceScore::redundancy};

}  // namespace winnow::kvcache
