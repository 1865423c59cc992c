#include "engine/cuda/cuda_backend.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/cuda/read_bandwidth.h"
#include "base/error.h"
#include "engine/cache_memory.h"
#include "engine/cuda/cuda_runner.h"
#include "engine/cuda/pinned_copies.h"
#include "engine/engine.h"
#include "model/cuda/fast_paths.h"
#include "ops/cuda/linear/fp8_support.h"
#include "parallel/cuda/nccl_ranks.h"

namespace winnow::engine {
namespace {

using kvcache::cuda::DeviceCache;
using model::cuda::Arithmetic;
using model::cuda::DeviceModel;

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

// Selects the device. Must run before anything is allocated there.
int use(int device) {
  winnow::cuda::use_device(device);
  return device;
}

// The most sequences of a step: beyond this a step only takes longer and is not more efficient.
constexpr int kMostBatch = 1024;
// The same for rules that choose or drop entries by query: each sequence has scratch of its own.
constexpr int kMostChoosing = 16;
// Recurrent states per sequence of an engine: prefixes and forks hold some, too.
constexpr int kStatesOfSequence = 2;

class CudaBackend : public Backend {
 public:
  CudaBackend(const model::Model& model, const EngineConfig& config, parallel::Communicator* ranks)
      : device_(use(config.cuda_device.value_or(0))),
        ranks_(ranks == nullptr        ? nullptr
               : config.ranks_use_nccl ? parallel::cuda::make_nccl_ranks(*ranks)
                                       : parallel::cuda::make_device_ranks(*ranks, device_)),
        model_(model, format_of(config.weights), ranks_.get()) {
    if (config.fp8_products) {
      const std::string problem = ops::cuda::Fp8Support::here().problem();
      require(problem.empty(), "--dtype fp8: {}", problem);
    }
  }

  [[nodiscard]] const model::ModelSpec& spec() const override { return model_.spec(); }
  [[nodiscard]] kvcache::CacheShape cache_shape() const override { return model_.cache_shape(); }
  [[nodiscard]] std::size_t weight_bytes_per_step(int sequences) const override {
    return model_.weights().bytes_per_step(model_.spec(), sequences);
  }
  [[nodiscard]] double read_bandwidth() const override {
    use(device_);
    return winnow::cuda::measure_read_bandwidth();
  }
  [[nodiscard]] std::optional<std::size_t> memory_in_use() const override {
    use(device_);
    return winnow::cuda::total_memory() - winnow::cuda::free_memory();
  }

  [[nodiscard]] bool hands_out_stream() const override { return ranks_ == nullptr; }
  [[nodiscard]] std::string_view rank_exchange() const override {
    return ranks_ == nullptr ? "" : ranks_->share_memory() ? "memory" : "nccl";
  }

  [[nodiscard]] std::unique_ptr<Runner> make_runner(const EngineConfig& config,
                                                    int tokens) const override {
    use(device_);
    kvcache::CacheConfig cache = config.cache;
    if (tokens > 0) {
      cache.max_bytes = std::min(cache.max_bytes, most_bytes(cache, tokens, config.max_sequences));
    }
    MemoryPlan plan = plan_memory(config, tokens, cache.max_bytes);
    plan.states = (tokens > 0 ? 1 : kStatesOfSequence) * config.max_sequences;
    cache.max_bytes = plan.cache_bytes;
    return make_cuda_runner(device_, model_, cache, plan);
  }

 private:
  // `tokens` > 0: a runner for this many tokens, of which there may be several; else the engine's
  // runner. `wanted`: bytes of cache, or kAllThereIs. Under rules that choose or drop entries by
  // query, steps have few sequences and are padded only for models that have no other path. Staging
  // memory for --host-gib is not free.
  [[nodiscard]] MemoryPlan plan_memory(const EngineConfig& config, int tokens,
                                       std::size_t wanted) const {
    const bool sees_all = !config.cache.traits().drops() && !config.cache.traits().selects;
    const bool pads =
        !model_.has_plain_layers() || !model_.can_sum_rows() ||
        (ranks_ != nullptr && model_.spec().experts() != nullptr) ||
        (sees_all && tokens == 0 && model::cuda::pads_steps(model_, config.max_sequences));
    const int most = sees_all ? kMostBatch : kMostChoosing;
    const std::size_t staging = tokens == 0 ? PinnedCopies::staging_bytes(config.host_bytes) : 0;
    const std::size_t all_free = winnow::cuda::free_memory();
    const std::size_t free = all_free - std::min(staging, all_free);
    const Arithmetic arithmetic = config.fp8_products ? Arithmetic::fp8 : Arithmetic::bf16;
    const std::size_t copies = model::cuda::MatrixWeights::copy_bytes(model_, arithmetic);
    const bool with_copies = tokens == 0 && has_room_for_copies(copies, free, wanted);
    return {.most_padded = pads ? std::min(config.max_sequences, most) : 0,
            .with_copies = with_copies,
            .arithmetic = arithmetic,
            .cache_bytes = fitted(wanted, with_copies ? free - copies : free, config.cache_part)};
  }

  // The memory for the cache out of `free`: `wanted` bytes, or `part` of what there is.
  static std::size_t fitted(std::size_t wanted, std::size_t free, double part) {
    constexpr double kGib = 0x1p30;
    const std::size_t most = cache_room(free);
    require(
        wanted <= most || wanted == kAllThereIs,
        "the cache wants {:.2f} GiB, but of the device's {:.2f} GiB only {:.2f} are free beside "
        "the weights, and {:.2f} of them can be cache: --kv-gib asks for less",
        static_cast<double>(wanted) / kGib,
        static_cast<double>(winnow::cuda::total_memory()) / kGib, static_cast<double>(free) / kGib,
        static_cast<double>(most) / kGib);
    return wanted == kAllThereIs ? static_cast<std::size_t>(static_cast<double>(most) * part)
                                 : wanted;
  }

  // The most bytes of one sequence, or several with `tokens` tokens in all, if nothing is evicted.
  [[nodiscard]] std::size_t most_bytes(const kvcache::CacheConfig& cache, int tokens,
                                       int sequences) const {
    const auto shape = model_.cache_shape();
    const int entries = tokens + std::min(tokens, cache.window) + 3 * ops::kPageEntries;
    const std::size_t pages = static_cast<std::size_t>(shape.all_heads()) *
                              static_cast<std::size_t>(entries / ops::kPageEntries + 1) *
                              DeviceCache::page_cost(cache, shape);
    // States take no more than half of the cache (DeviceCache).
    const std::size_t states = static_cast<std::size_t>(sequences) * shape.states.bytes();
    return states + std::max(pages, states);
  }

  int device_;
  std::unique_ptr<parallel::cuda::DeviceRanks> ranks_;  // null: this is the whole model
  DeviceModel model_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const model::Model& model, const EngineConfig& config,
                                           parallel::Communicator* ranks) {
  return std::make_unique<CudaBackend>(model, config, ranks);
}

}  // namespace winnow::engine
