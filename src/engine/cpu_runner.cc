#include "engine/cpu_runner.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/host_memory.h"
#include "base/last_level_cache.h"
#include "base/read_bandwidth.h"
#include "base/threads.h"
#include "engine/cache_memory.h"
#include "kvcache/sequence_cache.h"
#include "ops/amx_packed_weights.h"

namespace winnow::engine {
namespace {

CacheUsage usage_of(const kvcache::SequenceCache& cache) {
  CacheUsage usage;
  usage.tokens = cache.length();
  usage.live_entries = cache.live_entries();
  usage.bytes = cache.bytes();
  usage.dense_bytes = cache.dense_bytes();
  usage.state_bytes = cache.state().bytes();
  const auto& shape = cache.cache().shape();
  usage.dense_entries = shape.dense_entries(cache.length());
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int head = 0; head < shape.kv_heads_of(layer); ++head) {
      usage.per_head.push_back(cache.head(layer, head).live_entries());
    }
  }
  return usage;
}

/// Copies of the weights in tiles, if steps can multiply them and they fit in the last-level cache,
/// of which entries and other programs need a share as well.
std::optional<ops::AmxPackedWeights> amx_packed_weights(const model::Model& model,
                                                        const EngineConfig& config) {
  const bool used =
      config.compute == DType::bf16 && !config.deterministic && ops::cpu_takes_amx_packed_weights();
  if (!used || model.weights().bytes_per_step(model.spec(), 1) > last_level_cache_bytes() / 4) {
    return std::nullopt;
  }
  return ops::AmxPackedWeights(model.weights().matrices());
}

std::size_t weight_bytes(const model::Weights& weights) {
  std::size_t total = weights.expert_bytes() + weights.layer_embedding.bytes();
  for (const ops::Weight& matrix : weights.matrices()) {
    total += matrix.bytes();
  }
  return total + (weights.embedding.data == weights.head.data ? 0 : weights.embedding.bytes());
}

// The address space that the cache may take: pages take memory only when they are first written.
// If the weights are larger than the memory, so that they are read from the disk again and again,
// the cache still gets a tenth of it.
std::size_t all_there_is(const model::Weights& weights, int ranks) {
  const std::size_t memory = total_host_memory() / static_cast<std::size_t>(ranks);
  const std::size_t taken = weight_bytes(weights);
  return std::max(cache_room(memory - std::min(memory, taken)), memory / 10);
}

class CpuSequence : public SequenceState {
 public:
  explicit CpuSequence(kvcache::SequenceCache cache) : cache_(std::move(cache)) {}
  [[nodiscard]] int length() const override { return cache_.length(); }
  [[nodiscard]] std::unique_ptr<SequenceState> fork() const override {
    return std::make_unique<CpuSequence>(cache_.fork());
  }
  [[nodiscard]] CacheUsage usage() const override { return usage_of(cache_); }
  [[nodiscard]] std::int64_t live_entries() const override { return cache_.live_entries(); }
  [[nodiscard]] kvcache::SavedSequence save() const override { return kvcache::save(cache_); }
  [[nodiscard]] kvcache::SequenceCache& cache() { return cache_; }
  [[nodiscard]] const kvcache::SequenceCache& cache() const { return cache_; }

 private:
  kvcache::SequenceCache cache_;
};

class CpuRunner : public Runner {
 public:
  CpuRunner(const model::Model& model, const EngineConfig& config, parallel::Communicator* ranks)
      : model_(model),
        tiled_(amx_packed_weights(model, config)),
        cache_(fitted(config, model, ranks), model.cache_shape()) {
    context_ = {config.compute, config.deterministic, &workspace_, tiled_ ? &*tiled_ : nullptr,
                ranks};
  }

  std::unique_ptr<SequenceState> open(const kvcache::SequenceLimits& limits) override {
    return std::make_unique<CpuSequence>(kvcache::SequenceCache(cache_, limits));
  }

  std::unique_ptr<SequenceState> restore(const kvcache::SequenceLimits& limits,
                                         const kvcache::SavedSequence& saved) override {
    auto cache = kvcache::restore(cache_, limits, saved);
    return cache ? std::make_unique<CpuSequence>(std::move(*cache)) : nullptr;
  }

  [[nodiscard]] kvcache::PageNeed need(const SequenceState& sequence, int tokens) const override {
    return static_cast<const CpuSequence&>(sequence).cache().page_need(tokens);
  }

  [[nodiscard]] bool has_room(const kvcache::PageNeed& need) const override {
    return cache_.has_pages(need);
  }

  void forward(std::span<const SequenceShare> shares, ops::Matrix<float> logits,
               std::span<std::int32_t> next) override {
    const FixedThreads fixed;
    std::vector<model::SequenceStep> steps;
    std::size_t rows = 0;
    for (const SequenceShare& share : shares) {
      steps.push_back({&static_cast<CpuSequence&>(*share.sequence).cache(), share.tokens,
                       share.logit_rows, share.visible});
      steps.back().state = share.state;
      steps.back().adapter = share.adapter;
      steps.back().listener = share.listener;
      steps.back().stream = share.stream;
      steps.back().input = share.input;
      rows += share.logit_rows;
    }
    if (logits.rows == 0 && rows > 0) {
      const auto vocab = static_cast<std::size_t>(model_.vocab());
      logits_.ensure(rows * vocab);
      logits = {logits_.data(), rows, vocab};
    }
    model_.forward(context_, steps, logits);
    if (!next.empty()) {
      choose(shares, logits, next);
    }
  }

  [[nodiscard]] std::size_t page_bytes() const override { return cache_.page_bytes(); }
  [[nodiscard]] std::size_t state_bytes() const override { return cache_.state_bytes(); }
  [[nodiscard]] std::size_t capacity_bytes() const override { return cache_.capacity_bytes(); }
  [[nodiscard]] bool forks_share_pages() const override { return true; }

 private:
  // Copies of sequences and a draft model take their part of the same memory.
  static kvcache::CacheConfig fitted(const EngineConfig& config, const model::Model& model,
                                     const parallel::Communicator* ranks) {
    kvcache::CacheConfig cache = config.cache;
    if (cache.max_bytes == kAllThereIs) {
      const std::size_t all = all_there_is(model.weights(), ranks == nullptr ? 1 : ranks->size());
      const std::size_t others = config.host_bytes + config.other_bytes;
      const std::size_t left = std::max(all - std::min(all, others), all / 10);
      cache.max_bytes = static_cast<std::size_t>(static_cast<double>(left) * config.cache_part);
    }
    return cache;
  }

  static void choose(std::span<const SequenceShare> shares, ops::Matrix<float> logits,
                     std::span<std::int32_t> next) {
    struct Row {
      const SequenceShare* share;
      bool last;  // of its share: chosen by the share's rule; other rows take the most likely
    };
    std::vector<Row> rows;
    for (const SequenceShare& share : shares) {
      for (std::size_t i = 1; i <= share.logit_rows; ++i) {
        rows.push_back({&share, i == share.logit_rows});
      }
    }
    if (!std::ranges::all_of(shares, &ops::TokenRule::is_certain, &SequenceShare::rule)) {
      ops::check_vocabulary(logits.cols);  // the loop must not throw
    }
    parallel_each(rows.size(), [&](std::size_t i, int) {
      const auto& [share, last] = rows[i];
      const ops::TokenRule rule = last ? share->rule : ops::TokenRule{};
      std::vector<std::uint64_t> allowed;
      if (last && share->allow) {
        allowed.resize(ops::mask_words(logits.cols));
        share->allow(allowed);
      }
      next[i] = ops::sample_token(logits.row(i), share->history, rule, allowed);
    });
  }

  const model::Model& model_;
  std::optional<ops::AmxPackedWeights> tiled_;
  kvcache::Cache cache_;
  ops::Workspace workspace_;
  ops::Context context_;
  Buffer<float> logits_;
};

}  // namespace

std::size_t CpuBackend::weight_bytes_per_step(int sequences) const {
  return model_.weights().bytes_per_step(model_.spec(), sequences);
}

double CpuBackend::read_bandwidth() const {
  return measure_read_bandwidth();
}

std::unique_ptr<Runner> CpuBackend::make_runner(
    const EngineConfig& config, int /*tokens: memory is taken as it is used*/) const {
  return std::make_unique<CpuRunner>(model_, config, ranks_);
}

}  // namespace winnow::engine
