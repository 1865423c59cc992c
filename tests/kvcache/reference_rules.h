// The rules by their definitions: keeps the whole history, and chooses anew what each query sees.
// Slow, in double, and as simple as possible; for one layer of one sequence.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "kvcache/reference_attention.h"
#include "kvcache/reference_evictions.h"
#include "kvcache/reference_pages.h"
#include "kvcache/sequence_cache.h"
#include "ops/rotation.h"

namespace winnow::testing {

/// One token as a layer receives it.
struct LayerToken {
  std::vector<float> queries;           // [kv_heads * group * head_dim]
  std::vector<float> keys;              // [kv_heads * head_dim]
  std::vector<float> values;            // [kv_heads * head_dim]
  std::vector<std::uint8_t> decisions;  // [kv_heads]
  std::vector<float> logits;            // [kv_heads]
  std::vector<float> omegas;            // [kv_heads]
};

struct LayerAnswer {
  std::vector<double> out;   // [kv_heads * group * head_dim]
  std::vector<int> visible;  // [kv_heads]
  std::vector<int> live;     // [kv_heads], entries held after the token's step
};

/// The entry after rounding to the storage format of `layout`.
inline ReferenceEntry rounded(const ops::PageLayout& layout, std::span<const float> key,
                              std::span<const float> value) {
  std::vector<std::byte> codes(layout.row_bytes());
  std::vector<float> dequantized(key.size());
  ops::QuantizedRow row{codes, {}};
  ReferenceEntry entry;
  ops::quantize_row(layout, key, row);
  ops::dequantize_row(layout, row, dequantized);
  entry.key.assign(dequantized.begin(), dequantized.end());
  ops::quantize_row(layout, value, row);
  ops::dequantize_row(layout, row, dequantized);
  entry.value.assign(dequantized.begin(), dequantized.end());
  return entry;
}

class ReferenceLayer {
 public:
  ReferenceLayer(const kvcache::CacheConfig& config, const kvcache::CacheShape& shape, int layer,
                 const kvcache::SequenceLimits& limits)
      : config_(config),
        shape_(shape),
        reach_(shape.reach_of(layer)),
        layer_(layer),
        limits_(limits),
        layout_(config.format, shape.head_dim),
        heads_(static_cast<std::size_t>(shape.kv_heads)) {}

  /// Takes the next token and returns its query's output.
  LayerAnswer take(const LayerToken& token) {
    if (!layout_.rotated()) {
      return take_as_it_is(token);
    }
    // Attention does not change when queries, keys and values are rotated and outputs rotated back.
    LayerToken rotated = token;
    for (auto* rows : {&rotated.queries, &rotated.keys, &rotated.values}) {
      each_head(*rows, [](std::span<float> x) { ops::rotate(x); });
    }
    LayerAnswer answer = take_as_it_is(rotated);
    std::vector<float> out(answer.out.begin(), answer.out.end());
    each_head(out, [](std::span<float> x) { ops::rotate_back(x); });
    answer.out.assign(out.begin(), out.end());
    return answer;
  }

  /// The smallest relative gap between chosen and rejected scores (TOVA, H2O, Quest). If it is as
  /// small as float rounding, an implementation may choose differently.
  [[nodiscard]] double margin() const { return margin_; }

  /// B of the method: (prompt + new tokens) / CR.
  [[nodiscard]] int budget() const {
    return std::max(1, static_cast<int>(std::floor(limits_.total_tokens / config_.cr)));
  }

 private:
  using Kind = kvcache::RuleKind;

  // A layer with a sliding window follows no other rule.
  [[nodiscard]] bool slides() const { return reach_ > 0; }
  [[nodiscard]] bool merges() const { return !slides() && config_.rule == Kind::dmc; }

  template <class F>
  void each_head(std::vector<float>& rows, const F& f) const {
    const auto dim = static_cast<std::size_t>(shape_.head_dim);
    for (std::size_t first = 0; first < rows.size(); first += dim) {
      f(std::span(rows).subspan(first, dim));
    }
  }

  LayerAnswer take_as_it_is(const LayerToken& token) {
    LayerAnswer answer;
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      add(heads_[h], token, h);
      answer_head(heads_[h], token, h, answer);
    }
    ++length_;
    forget();
    for (const Head& head : heads_) {
      answer.live.push_back(live_after(head));
    }
    return answer;
  }

  struct Head {
    std::vector<ReferenceEntry> entries;  // DMC: by segment, else by position
    std::vector<bool> decisions;          // by position
    std::vector<float> logits;            // by position
    std::set<std::size_t> dropped;        // for rules with scores
    std::vector<double> attention;        // by position: received so far, or (TOVA) just now
    std::vector<std::vector<std::vector<float>>> queries;  // by position and query head
    // DMC's open segment. In float and in the order of section 2: after rounding to a storage
    // format, another order could give other codes. head_cache_test compares with the closed form.
    std::vector<float> open_key;
    std::vector<float> open_value;
    float open_weight = 0.0F;
  };

  void add(Head& head, const LayerToken& token, std::size_t h) {
    const auto dim = static_cast<std::size_t>(shape_.head_dim);
    const auto key = std::span(token.keys).subspan(h * dim, dim);
    const auto value = std::span(token.values).subspan(h * dim, dim);
    head.decisions.push_back(token.decisions[h] != 0);
    head.logits.push_back(token.logits[h]);
    if (merges()) {
      merge_or_open(head, key, value, token.omegas[h]);
    } else {
      head.entries.push_back(rounded(layout_, key, value));
    }
    head.attention.push_back(0.0);
    if (!slides() && config_.rule == Kind::dms_budget) {
      limit_archive(head);
    }
  }

  // Only a limited number may stay besides a full window: drops the kept one with the highest
  // logit, the oldest on a tie.
  void limit_archive(Head& head) const {
    std::vector<std::pair<float, std::size_t>> kept;  // negated: the highest sorts first
    for (int j = 0; length_ - j > config_.window; ++j) {
      const auto key = static_cast<std::size_t>(j);
      if (sees(head, length_, j)) {
        kept.emplace_back(-head.logits[key + static_cast<std::size_t>(config_.shift)], key);
      }
    }
    std::ranges::sort(kept);
    if (static_cast<int>(kept.size()) > std::max(0, budget() - (config_.window + 1))) {
      head.dropped.insert(kept.front().second);
    }
  }

  void merge_or_open(Head& head, std::span<const float> key, std::span<const float> value,
                     float omega) const {
    if (head.decisions.back() && length_ > 0) {
      head.open_weight += omega;
      const float share = omega / head.open_weight;
      for (std::size_t d = 0; d < key.size(); ++d) {
        head.open_key[d] += (key[d] - head.open_key[d]) * share;
        head.open_value[d] += (value[d] - head.open_value[d]) * share;
      }
    } else {
      if (length_ > 0) {  // the segment closes
        head.entries.back() = rounded(layout_, head.open_key, head.open_value);
      }
      head.entries.emplace_back();
      head.open_key.assign(key.begin(), key.end());
      head.open_value.assign(value.begin(), value.end());
      head.open_weight = omega;
    }
    head.entries.back().key.assign(head.open_key.begin(), head.open_key.end());
    head.entries.back().value.assign(head.open_value.begin(), head.open_value.end());
  }

  // Whether the query at position `i` sees entry `j` (not for Quest's choice of pages).
  [[nodiscard]] bool sees(const Head& head, int i, int j) const {
    const auto key = static_cast<std::size_t>(j);
    if (slides()) {
      return shape_.chunked ? i / reach_ == j / reach_ : i - j < reach_;
    }
    switch (config_.rule) {
      case Kind::dms:
      case Kind::dms_quest:
      case Kind::dms_budget: {
        const std::size_t decided_at = key + static_cast<std::size_t>(config_.shift);
        const bool marked = decided_at < head.decisions.size() && head.decisions[decided_at];
        return i - j <= config_.window || (!marked && !head.dropped.contains(key));
      }
      case Kind::streaming: {
        const int sinks = std::min(config_.sinks, budget() - 1);
        return i - j < budget() - sinks || j < sinks;
      }
      default:
        return !head.dropped.contains(key);
    }
  }

  void answer_head(Head& head, const LayerToken& token, std::size_t h, LayerAnswer& answer) {
    const auto dim = static_cast<std::size_t>(shape_.head_dim);
    std::vector<std::size_t> visible;
    for (std::size_t j = 0; j < head.entries.size(); ++j) {
      if (sees(head, length_, static_cast<int>(j))) {
        visible.push_back(j);
      }
    }
    std::set<std::size_t> read;
    head.queries.emplace_back();
    for (std::size_t g = 0; g < static_cast<std::size_t>(shape_.group); ++g) {
      const auto query = std::span(token.queries)
                             .subspan((h * static_cast<std::size_t>(shape_.group) + g) * dim, dim);
      head.queries.back().emplace_back(query.begin(), query.end());
      const auto chosen = selects_pages() ? window_and_best_pages(head, visible, query) : visible;
      std::vector<const ReferenceEntry*> seen;
      for (const std::size_t j : chosen) {
        seen.push_back(&head.entries[j]);
      }
      read.insert(chosen.begin(), chosen.end());
      std::vector<double> weights;
      const auto out = attend_exactly(query, seen, weights);
      answer.out.insert(answer.out.end(), out.begin(), out.end());
      for (std::size_t n = 0; n < chosen.size() && !merges(); ++n) {
        head.attention[chosen[n]] += weights[n];
      }
    }
    answer.visible.push_back(static_cast<int>(read.size()));
  }

  // Quest: the prompt's queries read everything that is held; later ones read the window, if any,
  // and the best pages of the rest.
  [[nodiscard]] bool selects_pages() const {
    return !slides() && (config_.rule == Kind::quest || config_.rule == Kind::dms_quest) &&
           length_ >= limits_.prompt_tokens;
  }

  [[nodiscard]] std::vector<std::size_t> window_and_best_pages(const Head& head,
                                                               const std::vector<std::size_t>& held,
                                                               std::span<const float> query) {
    const bool has_window = config_.rule == Kind::dms_quest;
    const int window = has_window ? config_.window + 1 : 0;
    std::vector<std::size_t> archive;
    std::vector<std::size_t> read;
    for (const std::size_t j : held) {
      (length_ - static_cast<int>(j) < window ? read : archive).push_back(j);
    }
    const PageBudget budgeted{.cr = config_.cr,
                              .entries = static_cast<std::size_t>(std::max(1, budget() - window)),
                              .with_last = !has_window};
    const auto chosen = best_pages(head.entries, archive, budgeted, query,
                                   [&](double a, double b) { note_margin(a, b); });
    read.insert(read.begin(), chosen.begin(), chosen.end());
    return read;
  }

  // Rules that drop entries: drops what later queries do not see.
  void forget() {
    if (slides()) {
      return;
    }
    if (config_.rule == Kind::tova) {
      std::vector<double> sums(static_cast<std::size_t>(length_), 0.0);
      for (Head& head : heads_) {
        std::ranges::transform(sums, head.attention, sums.begin(), std::plus<>());
        std::ranges::fill(head.attention, 0.0);  // only the current query's attention counts
      }
      if (retained(heads_.front()) > budget()) {
        const std::size_t victim = least(heads_.front(), sums, length_);
        for (Head& head : heads_) {
          head.dropped.insert(victim);
        }
      }
    } else if (config_.rule == Kind::h2o) {
      for (Head& head : heads_) {
        if (retained(head) > budget()) {
          head.dropped.insert(least(head, head.attention, length_ - budget() / 2));
        }
      }
    } else if (config_.traits().drops()) {
      for (std::size_t h = 0; h < heads_.size(); ++h) {
        forget_of(h);
      }
    }
  }

  // The rules whose references are in reference_evictions.h.
  void forget_of(std::size_t h) {
    Head& head = heads_[h];
    const EvictionState state{.entries = head.entries,
                              .queries = head.queries,
                              .attention = head.attention,
                              .held = held_positions(head),
                              .limits = limits_,
                              .cr = config_.cr,
                              .layer = layer_,
                              .head = h,
                              .rotated = layout_.rotated(),
                              .shape = shape_};
    for (const std::size_t position :
         evicted(config_.rule, state, [&](double a, double b) { note_margin(a, b); })) {
      head.dropped.insert(position);
    }
  }

  static std::vector<std::size_t> held_positions(const Head& head) {
    std::vector<std::size_t> held;
    for (std::size_t j = 0; j < head.entries.size(); ++j) {
      if (!head.dropped.contains(j)) {
        held.push_back(j);
      }
    }
    return held;
  }

  [[nodiscard]] int retained(const Head& head) const {
    return static_cast<int>(head.entries.size() - head.dropped.size());
  }

  // The held position before `end` with the lowest score, the oldest on a tie.
  std::size_t least(const Head& head, const std::vector<double>& scores, int end) {
    std::vector<std::pair<double, std::size_t>> candidates;
    for (std::size_t j = 0; j < static_cast<std::size_t>(end); ++j) {
      if (!head.dropped.contains(j)) {
        candidates.emplace_back(scores[j], j);
      }
    }
    std::ranges::sort(candidates);
    if (candidates.size() > 1) {
      note_margin(candidates[0].first, candidates[1].first);
    }
    return candidates.front().second;
  }

  void note_margin(double a, double b) {
    const double size = std::max(std::abs(a), std::abs(b));
    margin_ = std::min(margin_, size > 0.0 ? std::abs(a - b) / size : 0.0);
  }

  // Entries that a later query may see, or that are not yet known to be dropped.
  [[nodiscard]] int live_after(const Head& head) const {
    if (!slides() && config_.traits().drops()) {
      return retained(head);
    }
    int count = 0;
    for (std::size_t j = 0; j < head.entries.size(); ++j) {
      count += sees(head, length_ - 1, static_cast<int>(j)) ? 1 : 0;
    }
    return count;
  }

  kvcache::CacheConfig config_;
  kvcache::CacheShape shape_;
  int reach_;
  int layer_;
  kvcache::SequenceLimits limits_;
  ops::PageLayout layout_;
  std::vector<Head> heads_;
  int length_ = 0;
  double margin_ = 1.0;
};

}  // namespace winnow::testing
