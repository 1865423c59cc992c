#include "engine/cuda/cuda_backend.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/cuda/read_bandwidth.h"
#include "base/error.h"
#include "engine/cache_memory.h"
#include "engine/engine.h"
#include "model/cuda/decode_steps.h"
#include "model/cuda/fast_paths.h"
#include "model/cuda/prefill.h"
#include "model/cuda/seen_tokens.h"

namespace winnow::engine {
namespace {

using kvcache::cuda::DeviceCache;
using model::cuda::DecodeSteps;
using model::cuda::DeviceModel;
using model::cuda::RowChoice;

// What takes the device's memory beside the weights.
struct MemoryPlan {
  int most_padded = 0;       // sequences of steps that are padded; 0: none are
  bool with_copies = false;  // of the weights, see MatrixWeights
  std::size_t cache_bytes = 0;
  int states = 0;  // of recurrent layers that the cache has room for, if the model has them
};

// What runs of a model share. Sequences outlive neither.
struct Device {
  Device(int index, const DeviceModel& model, const kvcache::CacheConfig& config,
         const MemoryPlan& plan)
      : index(index),
        model(model),
        matrices(model, plan.with_copies),
        cache(config, model.cache_shape(), plan.states),
        seen(model.vocab()),
        head(model, model::cuda::most_step_sequences(plan.most_padded)),
        prefill(model, matrices, cache, head),
        steps(model, matrices, cache, head, plan.most_padded) {}

  // Every public entry point calls this, because each call may come from another thread.
  void select() const { winnow::cuda::select_device(index); }

  int index;
  const DeviceModel& model;
  winnow::cuda::Stream stream;
  model::cuda::MatrixWeights matrices;
  DeviceCache cache;
  model::cuda::SeenTokens seen;
  model::cuda::OutputHead head;
  model::cuda::Prefill prefill;
  DecodeSteps steps;
};

class CudaSequence : public SequenceState {
 public:
  CudaSequence(Device& device, int slot) : device_(device), slot_(slot) {}
  ~CudaSequence() override {
    device_.seen.forget(slot_);
    try {
      device_.select();
      device_.cache.close(slot_, device_.stream.get());
    } catch (const Error&) {
      // The device has failed. The next use reports it.
    }
  }
  CudaSequence(const CudaSequence&) = delete;
  CudaSequence& operator=(const CudaSequence&) = delete;

  [[nodiscard]] int slot() const { return slot_; }
  [[nodiscard]] int length() const override { return device_.cache.length(slot_); }

  [[nodiscard]] std::unique_ptr<SequenceState> fork() const override {
    device_.select();
    DeviceCache& cache = device_.cache;
    const bool has_state = !cache.states().holds(slot_) || cache.states().free() > 0;
    if (!has_state || !cache.has_pages(cache.fork_need(slot_), device_.stream.get())) {
      return nullptr;
    }
    return std::make_unique<CudaSequence>(device_, cache.fork(slot_, device_.stream.get()));
  }

  [[nodiscard]] kvcache::SavedSequence save() const override {
    device_.select();
    return device_.cache.save(slot_, device_.stream.get());
  }

  [[nodiscard]] std::int64_t live_entries() const override {
    device_.select();
    return device_.cache.live_entries(slot_, device_.stream.get());
  }

  [[nodiscard]] CacheUsage usage() const override {
    device_.select();
    const DeviceCache& cache = device_.cache;
    CacheUsage usage;
    usage.tokens = length();
    usage.per_head = counts();
    usage.state_bytes = cache.states().holds(slot_) ? cache.states().shape().bytes() : 0;
    usage.bytes = cache.bytes(cache.pages_of(slot_, usage.per_head)) + usage.state_bytes;
    const kvcache::CacheShape& shape = cache.shape();
    std::size_t dense_pages = 0;
    for (std::size_t row = 0; row < usage.per_head.size(); ++row) {
      const int layer = shape.layer_of(static_cast<int>(row));
      usage.per_head[row] += cache.window_count(layer, slot_);
      usage.live_entries += usage.per_head[row];
      dense_pages += ops::pages_for(shape.dense_entries(layer, length()));
    }
    usage.dense_entries = shape.dense_entries(length());
    usage.dense_bytes = cache.bytes(dense_pages) + usage.state_bytes;
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
  CudaRunner(int device, const DeviceModel& model, const kvcache::CacheConfig& config,
             const MemoryPlan& plan)
      : device_(device, model, config, plan) {}

  std::unique_ptr<SequenceState> open(const kvcache::SequenceLimits& limits) override {
    device_.select();
    return std::make_unique<CudaSequence>(device_,
                                          device_.cache.open(limits, device_.stream.get()));
  }

  std::unique_ptr<SequenceState> restore(const kvcache::SequenceLimits& limits,
                                         const kvcache::SavedSequence& saved) override {
    device_.select();
    const auto slot = device_.cache.restore(limits, saved, device_.stream.get());
    return slot ? std::make_unique<CudaSequence>(device_, *slot) : nullptr;
  }

  [[nodiscard]] kvcache::PageNeed need(const SequenceState& sequence, int tokens) const override {
    const int slot = slot_of(&sequence);
    return {.archive = device_.cache.page_need(slot, tokens),
            .states = static_cast<std::size_t>(device_.cache.states().need(slot))};
  }

  [[nodiscard]] bool has_room(const kvcache::PageNeed& need) const override {
    device_.select();
    return need.states <= static_cast<std::size_t>(device_.cache.states().free()) &&
           device_.cache.has_pages(need.archive + need.window, device_.stream.get());
  }

  void forward(std::span<const SequenceShare> shares, ops::Matrix<float> logits,
               std::span<std::int32_t> next) override {
    device_.select();
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
             (!decodes || last - first < most_decoded())) {
        ++last;
      }
      const auto run = shares.subspan(first, last - first);
      const std::vector<RowChoice> rows = choices_of(run);
      std::size_t count = 0;
      for (const SequenceShare& share : run) {
        count += share.logit_rows;
      }
      const auto run_logits =  // only rank 0 has memory for them
          logits.rows > 0 && logits.data != nullptr ? logits.slice(row, row + count)
                                                    : ops::Matrix<float>();
      const auto run_next = next.empty() ? next : next.subspan(row, count);
      decodes ? decode(run, rows, run_logits, run_next) : prefill(run, rows, run_logits, run_next);
      row += count;
      first = last;
    }
  }

  [[nodiscard]] std::size_t page_bytes() const override {
    device_.select();
    return device_.cache.used_page_bytes(device_.stream.get()) + state_bytes();
  }
  [[nodiscard]] std::size_t state_bytes() const override {
    return device_.cache.states().used_bytes();
  }
  [[nodiscard]] std::size_t capacity_bytes() const override {
    return device_.cache.bytes(device_.cache.capacity()) + device_.cache.states().bytes();
  }
  [[nodiscard]] bool forks_share_pages() const override { return !device_.cache.drops(); }

 private:
  // A captured step tells what queries see where that does not follow from lengths and rule.
  [[nodiscard]] bool is_decode(const SequenceShare& share) const {
    return share.tokens.size() == 1 && share.logit_rows == 1 &&
           (share.visible.data == nullptr || device_.cache.selects()) &&
           share.sequence->length() > 0;
  }

  // Sequences of one step.
  [[nodiscard]] std::size_t most_decoded() const {
    return static_cast<std::size_t>(device_.steps.most_sequences());
  }

  void check_tokens(std::span<const std::int32_t> tokens) const {
    const int vocab = device_.model.vocab();
    const auto& embedded = device_.model.spec().layer_embeddings;
    const int of_layers = embedded ? embedded->vocab : vocab;
    for (const std::int32_t token : tokens) {
      require(token < of_layers || token >= vocab,
              "token {} has no embedding for layers: there are {}", token, of_layers);
      require(token >= 0 && token < vocab, "token {} is outside the vocabulary of {} tokens", token,
              vocab);
    }
  }

  // How each row's token is chosen; empty when all are the most likely ones.
  std::vector<RowChoice> choices_of(std::span<const SequenceShare> shares) {
    std::vector<RowChoice> rows;
    if (std::ranges::all_of(shares, [](const SequenceShare& share) {
          return share.rule.is_greedy() && !share.allow;
        })) {
      return rows;
    }
    for (const SequenceShare& share : shares) {
      rows.resize(rows.size() + share.logit_rows);
      if (share.logit_rows == 0) {
        continue;
      }
      RowChoice& last = rows.back();
      last.row.rule = share.rule;
      last.allow = share.allow ? &share.allow : nullptr;
      if (share.rule.penalty != 1.0F && !share.history.empty()) {
        last.row.seen = device_.seen.mark(slot_of(share.sequence), share.history, device_.stream);
        last.row.newest = share.history.back();
      }
    }
    return rows;
  }

  void decode(std::span<const SequenceShare> shares, std::span<const RowChoice> rows,
              ops::Matrix<float> logits, std::span<std::int32_t> next) {
    std::vector<std::int32_t> slots;
    std::vector<std::int32_t> tokens;
    std::vector<ops::Matrix<std::int32_t>> visible;
    for (const SequenceShare& share : shares) {
      slots.push_back(slot_of(share.sequence));
      tokens.push_back(share.tokens.front());
      visible.push_back(share.visible);
    }
    device_.steps.run(slots, tokens, rows, logits, next, visible, device_.stream);
  }

  void prefill(std::span<const SequenceShare> shares, std::span<const RowChoice> rows,
               ops::Matrix<float> logits, std::span<std::int32_t> next) {
    std::vector<model::cuda::PromptChunk> chunks;
    for (const SequenceShare& share : shares) {
      chunks.push_back({slot_of(share.sequence), share.tokens, share.logit_rows, share.visible});
    }
    device_.prefill.run(chunks, rows, logits, next, device_.stream);
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

// Chooses the device, the first time before anything is put there.
int use(int device) {
  winnow::cuda::use_device(device);
  return device;
}

// Sequences of one step, whatever is asked for: beyond, a step is only longer, not more efficient.
constexpr int kMostBatch = 1024;
// States that an engine has room for, by its sequences: prefixes and forks have some, too.
constexpr int kStatesOfSequence = 2;

class CudaBackend : public Backend {
 public:
  CudaBackend(const model::Model& model, const EngineConfig& config, parallel::Communicator* ranks)
      : device_(use(config.cuda_device.value_or(0))),
        ranks_(ranks != nullptr ? std::make_unique<parallel::cuda::DeviceRanks>(*ranks, device_)
                                : nullptr),
        model_(model, format_of(config.weights), ranks_.get()) {}

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
    return std::make_unique<CudaRunner>(device_, model_, cache, plan);
  }

 private:
  // `tokens` > 0: not the engine's runner, but one of perhaps several for so many tokens. Where
  // queries choose what they read or make it leave, steps are of few sequences. `wanted` bytes of
  // cache, or all that there is. The engine's copies of the weights may take a fourth of the
  // memory, where that leaves the cache what it wants: a prompt or a step of many sequences without
  // them moves the weights twice more (docs/results/gpu.md).
  [[nodiscard]] MemoryPlan plan_memory(const EngineConfig& config, int tokens,
                                       std::size_t wanted) const {
    const bool sees_all = !config.cache.traits().drops() && !config.cache.traits().selects;
    require(sees_all || model_.is_plain(),
            "--cache {}: the model has {}, which it takes on the CPU only",
            kvcache::rule_name(config.cache.rule), model::beyond_plain(model_.spec()));
    require(!config.cache.traits().merges || !model_.spec().shares_entries(),
            "--cache {}: the model has layers that share entries, which it takes on the CPU only",
            kvcache::rule_name(config.cache.rule));
    const int group = model_.cache_shape().most_group();
    require((sees_all && !config.cache.traits().merges) || group <= kvcache::cuda::kMostQueryWarps,
            "--cache {}: {} query heads per KV head; on a device at most {} are supported",
            kvcache::rule_name(config.cache.rule), group, kvcache::cuda::kMostQueryWarps);
    require(ranks_ == nullptr || !config.cache.traits().drops(),
            "--cache {} with --tensor-parallel: takes CPU ranks only",
            kvcache::rule_name(config.cache.rule));
    const bool pads =
        sees_all &&
        (!model_.has_plain_layers() || (ranks_ != nullptr && model_.spec().experts() != nullptr) ||
         (tokens == 0 && model::cuda::pads_steps(model_, config.max_sequences)));
    const std::size_t free = winnow::cuda::free_memory();
    const std::size_t copies = model::cuda::MatrixWeights::copy_bytes(model_);
    const bool with_copies = tokens == 0 && copies <= free / 4 &&
                             (wanted == kAllThereIs || wanted <= cache_room(free - copies));
    return {.most_padded = pads ? std::min(config.max_sequences, kMostBatch) : 0,
            .with_copies = with_copies,
            .cache_bytes = fitted(wanted, with_copies ? free - copies : free)};
  }

  // What the cache may take of what is free: `wanted` bytes, or what there is.
  static std::size_t fitted(std::size_t wanted, std::size_t free) {
    constexpr double kGib = 0x1p30;
    const std::size_t most = cache_room(free);
    require(
        wanted <= most || wanted == kAllThereIs,
        "the cache wants {:.2f} GiB, but of the device's {:.2f} GiB only {:.2f} are free beside "
        "the weights, and {:.2f} of them can be cache: --kv-gib asks for less",
        static_cast<double>(wanted) / kGib,
        static_cast<double>(winnow::cuda::total_memory()) / kGib, static_cast<double>(free) / kGib,
        static_cast<double>(most) / kGib);
    return std::min(wanted, most);
  }

  // Of a sequence, or several that share so many tokens, however little they evict.
  [[nodiscard]] std::size_t most_bytes(const kvcache::CacheConfig& cache, int tokens,
                                       int sequences) const {
    const auto shape = model_.cache_shape();
    const int entries = tokens + std::min(tokens, cache.window) + 3 * ops::kPageEntries;
    const std::size_t pages = static_cast<std::size_t>(shape.all_heads()) *
                              static_cast<std::size_t>(entries / ops::kPageEntries + 1) *
                              DeviceCache::page_cost(cache, shape);
    // Of which states take no more than half (DeviceCache).
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
