// The reference fixtures of tests/fixtures, and a runner for them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "kvcache/sequence_cache.h"
#include "model/checkpoint.h"
#include "model/model.h"

namespace winnow::testing {

inline std::filesystem::path fixture_models() {
  return std::filesystem::path(WINNOW_SOURCE_DIR) / "tests/fixtures/models";
}

/// The reference's results for a text.
class Expected {
 public:
  explicit Expected(const std::filesystem::path& file) : file_(file) {}
  [[nodiscard]] std::span<const std::int32_t> tokens() const { return get<std::int32_t>("tokens"); }
  [[nodiscard]] std::span<const float> logits() const { return get<float>("logits"); }
  [[nodiscard]] std::span<const std::int32_t> live_entries() const {
    return get<std::int32_t>("live_entries");
  }

 private:
  template <class T>
  [[nodiscard]] std::span<const T> get(const std::string& name) const {
    return file_.tensors().at(name).as<T>();
  }
  SafetensorsFile file_;
};

/// The engine's results.
struct Outcome {
  std::vector<float> logits;               // [T, vocab]
  std::vector<std::int32_t> live_entries;  // [T, layers * kv_heads]
};

/// The cache configuration that a checkpoint was trained with.
inline kvcache::CacheConfig trained_cache(const model::ModelSpec& config) {
  kvcache::CacheConfig cache;
  cache.max_bytes = std::size_t{1} << 28;
  cache.format = ops::EntryFormat::f32;
  if (config.dms) {
    cache.rule = kvcache::RuleKind::dms;
    cache.window = config.dms->window;
    cache.shift = config.dms->shift;
  } else if (config.dmc) {
    cache.rule = kvcache::RuleKind::dmc;
  }
  return cache;
}

/// Feeds one sequence to a model, chunk by chunk.
class Runner {
 public:
  Runner(const model::Model& model, kvcache::Cache& cache, kvcache::SequenceLimits limits,
         bool deterministic = false)
      : Runner(model, kvcache::SequenceCache(cache, limits), deterministic) {}
  Runner(const model::Model& model, kvcache::SequenceCache sequence, bool deterministic)
      : model_(&model), sequence_(std::move(sequence)) {
    context_.compute = DType::f32;
    context_.deterministic = deterministic;
    context_.workspace = &workspace_;
  }

  void feed(std::span<const std::int32_t> tokens, Outcome& outcome) {
    const auto& config = model_->spec();
    const auto vocab = static_cast<std::size_t>(config.vocab);
    const auto heads = static_cast<std::size_t>(config.cached_heads());
    const std::size_t logits_before = outcome.logits.size();
    const std::size_t live_before = outcome.live_entries.size();
    outcome.logits.resize(logits_before + tokens.size() * vocab);
    outcome.live_entries.resize(live_before + tokens.size() * heads);
    const model::SequenceStep step{
        &sequence_,
        tokens,
        tokens.size(),
        {outcome.live_entries.data() + live_before, tokens.size(), heads}};
    model_->forward(context_, std::span(&step, 1),
                    {outcome.logits.data() + logits_before, tokens.size(), vocab});
  }

  /// Returns logits [rows, vocab] of the last tokens only, and nothing else.
  std::vector<float> feed_for_last(std::span<const std::int32_t> tokens, std::size_t rows) {
    const auto vocab = static_cast<std::size_t>(model_->spec().vocab);
    std::vector<float> logits(rows * vocab);
    const model::SequenceStep step{&sequence_, tokens, rows, {}};
    model_->forward(context_, std::span(&step, 1), {logits.data(), rows, vocab});
    return logits;
  }

  void feed_in_chunks(std::span<const std::int32_t> tokens, std::size_t chunk, Outcome& outcome) {
    for (std::size_t first = 0; first < tokens.size(); first += chunk) {
      feed(tokens.subspan(first, std::min(chunk, tokens.size() - first)), outcome);
    }
  }

  [[nodiscard]] kvcache::SequenceCache& sequence() { return sequence_; }

 private:
  const model::Model* model_;
  kvcache::SequenceCache sequence_;
  ops::Workspace workspace_;
  ops::Context context_;
};

inline float largest_difference(std::span<const float> a, std::span<const float> b) {
  float largest = a.size() == b.size() ? 0.0F : 1e30F;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

}  // namespace winnow::testing
