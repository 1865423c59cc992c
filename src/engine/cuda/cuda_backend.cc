#include "engine/cuda/cuda_backend.h"

#include <algorithm>
#include <vector>

#include "base/cuda/read_bandwidth.h"
#include "base/error.h"
#include "engine/engine.h"
#include "model/cuda/decode.h"
#include "model/cuda/prefill.h"

namespace winnow::engine {
namespace {

using kvcache::cuda::DeviceCache;
using model::cuda::DeviceModel;

// What runs of a model share. Sequences outlive neither.
struct Device {
  explicit Device(const DeviceModel& model, const kvcache::CacheConfig& config)
      : model(model),
        cache(config, model.cache_shape()),
        head(model),
        prefill(model, cache, head),
        decode(model, cache, head) {}

  const DeviceModel& model;
  winnow::cuda::Stream stream;
  DeviceCache cache;
  model::cuda::OutputHead head;
  model::cuda::Prefill prefill;
  model::cuda::Decode decode;
};

class CudaSequence : public SequenceState {
 public:
  CudaSequence(Device& device, int slot) : device_(device), slot_(slot) {}
  ~CudaSequence() override {
    try {
      device_.cache.close(slot_, device_.stream.get());
    } catch (const Error&) {
      // The device has failed. Whoever uses it next is told.
    }
  }
  CudaSequence(const CudaSequence&) = delete;
  CudaSequence& operator=(const CudaSequence&) = delete;

  [[nodiscard]] int slot() const { return slot_; }
  [[nodiscard]] int length() const override { return device_.cache.length(slot_); }

  [[nodiscard]] std::unique_ptr<SequenceState> fork() const override {
    DeviceCache& cache = device_.cache;
    if (!cache.has_pages(cache.fork_need(slot_), device_.stream.get())) {
      return nullptr;
    }
    return std::make_unique<CudaSequence>(device_, cache.fork(slot_, device_.stream.get()));
  }

  [[nodiscard]] CacheUsage usage() const override {
    const DeviceCache& cache = device_.cache;
    CacheUsage usage;
    usage.tokens = length();
    usage.per_head = counts();
    usage.bytes = cache.bytes(cache.pages_of(slot_, usage.per_head));
    for (std::int32_t& entries : usage.per_head) {
      entries += cache.window_count(slot_);
      usage.live_entries += entries;
    }
    const auto pages =
        static_cast<std::size_t>((length() + ops::kPageEntries - 1) / ops::kPageEntries);
    usage.dense_bytes = cache.bytes(pages * usage.per_head.size());
    return usage;
  }

 private:
  [[nodiscard]] std::vector<std::int32_t> counts() const {
    return device_.cache.archive_counts(slot_, device_.stream.get());
  }

  Device& device_;
  int slot_;
};

int slot_of(const SequenceState* sequence) {
  return static_cast<const CudaSequence*>(sequence)->slot();
}

class CudaRunner : public Runner {
 public:
  CudaRunner(const DeviceModel& model, const kvcache::CacheConfig& config)
      : device_(model, config) {}

  std::unique_ptr<SequenceState> open(const kvcache::SequenceLimits& limits) override {
    return std::make_unique<CudaSequence>(device_,
                                          device_.cache.open(limits, device_.stream.get()));
  }

  [[nodiscard]] bool has_room(std::span<const Growth> growths) const override {
    std::size_t pages = 0;
    for (const Growth& growth : growths) {
      pages += device_.cache.page_need(slot_of(growth.sequence), growth.tokens);
    }
    return device_.cache.has_pages(pages, device_.stream.get());
  }

  void forward(std::span<const SequenceShare> shares, ops::Matrix<float> logits,
               std::span<std::int32_t> best) override {
    for (const SequenceShare& share : shares) {
      check_tokens(share.tokens);
      device_.cache.reserve(slot_of(share.sequence),
                            share.sequence->length() + static_cast<int>(share.tokens.size()),
                            device_.stream.get());
    }
    // Runs of shares of one kind go together; results lie in the order of the shares.
    std::size_t row = 0;
    for (std::size_t first = 0; first < shares.size();) {
      std::size_t last = first + 1;
      const bool decodes = is_decode(shares[first]);
      while (last < shares.size() && is_decode(shares[last]) == decodes &&
             (!decodes || last - first < model::cuda::Decode::kMostSequences)) {
        ++last;
      }
      const auto run = shares.subspan(first, last - first);
      std::size_t rows = 0;
      for (const SequenceShare& share : run) {
        rows += share.logit_rows;
      }
      const auto run_logits = logits.rows > 0 ? logits.slice(row, row + rows) : logits;
      const auto run_best = best.empty() ? best : best.subspan(row, rows);
      decodes ? decode(run, run_logits, run_best) : prefill(run, run_logits, run_best);
      row += rows;
      first = last;
    }
  }

  [[nodiscard]] std::size_t page_bytes() const override {
    return device_.cache.used_page_bytes(device_.stream.get());
  }
  [[nodiscard]] std::size_t capacity_bytes() const override {
    return device_.cache.bytes(device_.cache.capacity());
  }
  [[nodiscard]] bool forks_share_pages() const override { return !device_.cache.drops(); }

 private:
  static bool is_decode(const SequenceShare& share) {
    return share.tokens.size() == 1 && share.logit_rows == 1 && share.visible.data == nullptr &&
           share.sequence->length() > 0;
  }

  void check_tokens(std::span<const std::int32_t> tokens) const {
    const int vocab = device_.model.config().vocab;
    for (const std::int32_t token : tokens) {
      require(token >= 0 && token < vocab, "token {} is outside the vocabulary of {} tokens", token,
              vocab);
    }
  }

  void decode(std::span<const SequenceShare> shares, ops::Matrix<float> logits,
              std::span<std::int32_t> best) {
    std::vector<std::int32_t> slots;
    std::vector<std::int32_t> tokens;
    for (const SequenceShare& share : shares) {
      slots.push_back(slot_of(share.sequence));
      tokens.push_back(share.tokens.front());
    }
    device_.decode.run(slots, tokens, logits, best, device_.stream);
  }

  void prefill(std::span<const SequenceShare> shares, ops::Matrix<float> logits,
               std::span<std::int32_t> best) {
    std::vector<model::cuda::PromptChunk> chunks;
    for (const SequenceShare& share : shares) {
      chunks.push_back({slot_of(share.sequence), share.tokens, share.logit_rows, share.visible});
    }
    device_.prefill.run(chunks, logits, best, device_.stream);
  }

  mutable Device device_;
};

ops::cuda::DeviceWeightFormat format_of(WeightStorage storage) {
  switch (storage) {
    case WeightStorage::as_stored:
      return ops::cuda::DeviceWeightFormat::bf16;
    case WeightStorage::fp8:
      return ops::cuda::DeviceWeightFormat::fp8;
    case WeightStorage::int8:
      return ops::cuda::DeviceWeightFormat::int8;
    case WeightStorage::int4:
      return ops::cuda::DeviceWeightFormat::int4;
  }
  return ops::cuda::DeviceWeightFormat::bf16;
}

// Chooses the device before anything is put there.
int use(int device) {
  winnow::cuda::use_device(device);
  return device;
}

class CudaBackend : public Backend {
 public:
  CudaBackend(const model::Model& model, const EngineConfig& config)
      : device_(use(config.cuda_device.value_or(0))), model_(model, format_of(config.weights)) {}

  [[nodiscard]] const ModelConfig& config() const override { return model_.config(); }
  [[nodiscard]] std::size_t weight_bytes_per_step() const override {
    return model_.weights().bytes_per_step();
  }
  [[nodiscard]] double read_bandwidth() const override {
    return winnow::cuda::measure_read_bandwidth();
  }

  [[nodiscard]] std::unique_ptr<Runner> make_runner(const EngineConfig& config,
                                                    int tokens) const override {
    use(device_);
    kvcache::CacheConfig cache = config.cache;
    // Activations and tables need room as well.
    cache.max_bytes = std::min(cache.max_bytes, winnow::cuda::free_memory() / 10 * 9);
    if (tokens > 0) {
      cache.max_bytes = std::min(cache.max_bytes, most_bytes(cache, tokens));
    }
    return std::make_unique<CudaRunner>(model_, cache);
  }

 private:
  // Of one sequence, however little it evicts.
  [[nodiscard]] std::size_t most_bytes(const kvcache::CacheConfig& cache, int tokens) const {
    const auto shape = model_.cache_shape();
    const int entries = tokens + std::min(tokens, cache.window) + 3 * ops::kPageEntries;
    return static_cast<std::size_t>(shape.layers) * static_cast<std::size_t>(shape.kv_heads) *
           static_cast<std::size_t>(entries / ops::kPageEntries + 1) *
           DeviceCache::page_cost(cache, shape);
  }

  int device_;
  DeviceModel model_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const model::Model& model, const EngineConfig& config) {
  return std::make_unique<CudaBackend>(model, config);
}

}  // namespace winnow::engine
