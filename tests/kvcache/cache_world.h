// Several sequences that share one cache, each with its reference, for property tests.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "kvcache/attend.h"
#include "kvcache/property.h"
#include "kvcache/reference_rules.h"

namespace winnow::testing {

/// Tokens of sequences; they depend only on the name, layer and position.
class TokenSource {
 public:
  TokenSource(const kvcache::CacheShape& shape, double rate) : shape_(shape), rate_(rate) {}

  [[nodiscard]] LayerToken token(std::uint64_t name, int layer, int position) const {
    Random random(name,
                  static_cast<std::uint64_t>(layer) << 32 | static_cast<std::uint64_t>(position));
    const auto heads = static_cast<std::size_t>(shape_.kv_heads);
    const std::size_t width = heads * static_cast<std::size_t>(shape_.head_dim);
    LayerToken token;
    token.queries = normal(random, width * static_cast<std::size_t>(shape_.group));
    token.keys = normal(random, width);
    token.values = shape_.joint ? token.keys : normal(random, width);
    for (std::size_t h = 0; h < heads; ++h) {
      const double draw = random.uniform();
      token.decisions.push_back(draw < rate_ ? 1 : 0);
      token.logits.push_back(coarse(rate_ - draw));
      token.omegas.push_back(0.01F + static_cast<float>(random.uniform()));
    }
    return token;
  }

 private:
  // Rounds so that some values are equal.
  static float coarse(double logit) { return static_cast<float>(std::round(logit * 16.0) / 16.0); }

  static std::vector<float> normal(Random& random, std::size_t count) {
    std::vector<float> values(count);
    for (float& value : values) {
      value = static_cast<float>(random.normal());
    }
    return values;
  }

  kvcache::CacheShape shape_;
  double rate_;
};

/// Rows of tokens as append_and_attend() takes them, and room for its outputs.
class ChunkBuffers {
 public:
  ChunkBuffers(const kvcache::CacheShape& shape, std::span<const LayerToken> tokens)
      : shape_(shape), rows_(tokens.size()) {
    for (const LayerToken& token : tokens) {
      queries_.insert(queries_.end(), token.queries.begin(), token.queries.end());
      keys_.insert(keys_.end(), token.keys.begin(), token.keys.end());
      values_.insert(values_.end(), token.values.begin(), token.values.end());
      decisions_.insert(decisions_.end(), token.decisions.begin(), token.decisions.end());
      logits_.insert(logits_.end(), token.logits.begin(), token.logits.end());
      omegas_.insert(omegas_.end(), token.omegas.begin(), token.omegas.end());
    }
    out_.assign(queries_.size(), std::numeric_limits<float>::quiet_NaN());
    visible_.assign(decisions_.size(), -1);
  }

  [[nodiscard]] kvcache::LayerChunk chunk(kvcache::SequenceCache& sequence) {
    const auto heads = static_cast<std::size_t>(shape_.kv_heads);
    const std::size_t width = heads * static_cast<std::size_t>(shape_.head_dim);
    const std::size_t wide = width * static_cast<std::size_t>(shape_.group);
    return {.sequence = &sequence,
            .queries = {queries_.data(), rows_, wide},
            .keys = {keys_.data(), rows_, width},
            .values = {values_.data(), rows_, width},
            .out = {out_.data(), rows_, wide},
            .decisions = {decisions_.data(), rows_, heads},
            .logits = {logits_.data(), rows_, heads},
            .omegas = {omegas_.data(), rows_, heads},
            .visible = {visible_.data(), rows_, heads}};
  }

  [[nodiscard]] std::span<const float> out(std::size_t row) const {
    const std::size_t width = out_.size() / rows_;
    return std::span(out_).subspan(row * width, width);
  }
  [[nodiscard]] std::span<const std::int32_t> visible(std::size_t row) const {
    const auto heads = static_cast<std::size_t>(shape_.kv_heads);
    return std::span(visible_).subspan(row * heads, heads);
  }

 private:
  kvcache::CacheShape shape_;
  std::size_t rows_;
  std::vector<float> queries_;
  std::vector<float> keys_;
  std::vector<float> values_;
  std::vector<std::uint8_t> decisions_;
  std::vector<float> logits_;
  std::vector<float> omegas_;
  std::vector<float> out_;
  std::vector<std::int32_t> visible_;
};

/// Pages of both pools that lists of `sequences` refer to, each counted once.
struct PageCount {
  std::size_t archive = 0;
  std::size_t window = 0;
};

inline PageCount count_pages(const kvcache::Cache& cache,
                             const std::vector<const kvcache::SequenceCache*>& sequences) {
  std::set<std::pair<const kvcache::PagePool*, kvcache::PageId>> archive;
  std::set<std::pair<const kvcache::PagePool*, kvcache::PageId>> window;
  const auto add = [](auto& pages, const kvcache::EntryList& list) {
    for (const kvcache::PageId page : list.pages()) {
      pages.emplace(&list.pool(), page);
    }
  };
  const auto add_window = [&](const kvcache::EntryList& list) {
    add(&list.pool() == &sequences.front()->cache().window_pool() ? window : archive, list);
  };
  for (const kvcache::SequenceCache* sequence : sequences) {
    for (int layer = 0; layer < cache.shape().layers; ++layer) {
      for (int head = 0; head < cache.shape().kv_heads; ++head) {
        add(archive, sequence->head(layer, head).archive());
        add_window(sequence->head(layer, head).window());
      }
    }
  }
  return {archive.size(), window.size()};
}

/// A sequence, the outputs of its tokens, and its cached tokens. Tokens that have an output but are
/// not cached (after a preemption) must give the same output when they are taken again.
class TestedSequence {
 public:
  TestedSequence(kvcache::Cache& cache, const kvcache::SequenceLimits& limits, std::uint64_t name)
      : cache_(&cache), limits_(limits), name_(name), held_(make()) {
    for (int layer = 0; layer < cache.shape().layers; ++layer) {
      references_.emplace_back(cache.config(), cache.shape(), layer, limits);
      answers_.emplace_back();
      tokens_.emplace_back();
    }
  }

  /// A fork with the same past and different later tokens.
  [[nodiscard]] std::unique_ptr<TestedSequence> fork(std::uint64_t name) const {
    return std::unique_ptr<TestedSequence>(new TestedSequence(*this, name));
  }

  void preempt() { held_ = make(); }

  [[nodiscard]] kvcache::SequenceCache& cache() { return *held_; }
  [[nodiscard]] const kvcache::SequenceCache& cache() const { return *held_; }

  /// The next `count` tokens of a layer, which takes them now.
  std::vector<LayerToken> next(const TokenSource& source, int layer, int count) {
    const auto l = static_cast<std::size_t>(layer);
    const int first = held_->head(layer, 0).length();
    while (static_cast<int>(tokens_[l].size()) < first + count) {
      const int position = static_cast<int>(tokens_[l].size());
      tokens_[l].push_back(source.token(name_, layer, position));
      answers_[l].push_back(references_[l].take(tokens_[l].back()));
    }
    return {tokens_[l].begin() + first, tokens_[l].begin() + first + count};
  }

  [[nodiscard]] const LayerAnswer& answer(int layer, int position) const {
    return answers_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(position)];
  }
  [[nodiscard]] double margin() const {
    double smallest = 1.0;
    for (const ReferenceLayer& reference : references_) {
      smallest = std::min(smallest, reference.margin());
    }
    return smallest;
  }

 private:
  TestedSequence(const TestedSequence& other, std::uint64_t name)
      : cache_(other.cache_),
        limits_(other.limits_),
        name_(name),
        held_(std::make_unique<kvcache::SequenceCache>(other.held_->fork())) {
    // Outputs beyond the cached tokens belong to the other's future, so recompute only the past.
    for (std::size_t l = 0; l < other.references_.size(); ++l) {
      const auto cached = static_cast<std::ptrdiff_t>(held_->length());
      references_.emplace_back(cache_->config(), cache_->shape(), static_cast<int>(l), limits_);
      tokens_.emplace_back(other.tokens_[l].begin(), other.tokens_[l].begin() + cached);
      answers_.emplace_back();
      for (const LayerToken& token : tokens_.back()) {
        answers_.back().push_back(references_.back().take(token));
      }
    }
  }

  [[nodiscard]] std::unique_ptr<kvcache::SequenceCache> make() const {
    return std::make_unique<kvcache::SequenceCache>(*cache_, limits_);
  }

  kvcache::Cache* cache_;
  kvcache::SequenceLimits limits_;
  std::uint64_t name_;
  std::unique_ptr<kvcache::SequenceCache> held_;
  std::vector<ReferenceLayer> references_;         // by layer
  std::vector<std::vector<LayerToken>> tokens_;    // by layer, position
  std::vector<std::vector<LayerAnswer>> answers_;  // by layer, position
};

/// Reaches of layers for property tests: in some worlds all are full, in others some slide.
inline std::vector<int> any_reach(int layers) {
  if (*rc::gen::arbitrary<bool>()) {
    return {};
  }
  return *rc::gen::container<std::vector<int>>(
      static_cast<std::size_t>(layers),
      rc::gen::oneOf(rc::gen::just(0), rc::gen::inRange(1, 6), rc::gen::inRange(1, 100)));
}

/// RoPE of layers for property tests: none, or a different one for each layer.
inline std::vector<kvcache::LayerRope> any_ropes(int layers, int head_dim) {
  std::vector<kvcache::LayerRope> ropes;
  if (*rc::gen::arbitrary<bool>()) {
    return ropes;
  }
  for (int layer = 0; layer < layers; ++layer) {
    kvcache::LayerRope& rope = ropes.emplace_back();
    rope.interleaved = *rc::gen::arbitrary<bool>();
    const int planes = *rc::gen::inRange(0, head_dim / 2 + 1);
    for (int i = 0; i < planes; ++i) {
      rope.frequencies.push_back(static_cast<float>(std::pow(0.01, 1.0 * i / planes)));
    }
  }
  return ropes;
}

/// The settings of a property test.
struct WorldConfig {
  kvcache::CacheConfig cache;
  kvcache::CacheShape shape;
  double rate = 0.5;  // of positive decisions
  bool deterministic = false;
};

}  // namespace winnow::testing
