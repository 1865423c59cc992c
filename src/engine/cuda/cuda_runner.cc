#include "engine/cuda/cuda_runner.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "engine/cuda/pinned_copies.h"
#include "engine/drafter.h"
#include "model/cuda/decode_steps.h"
#include "model/cuda/device_lora.h"
#include "model/cuda/fast_paths.h"
#include "model/cuda/prefill.h"
#include "model/cuda/seen_tokens.h"

namespace winnow::engine {
namespace {

using kvcache::cuda::DeviceCache;
using model::cuda::DecodeSteps;
using model::cuda::DeviceModel;
using model::cuda::RowChoice;

// The parts that runs of a model share. They must outlive the sequences.
struct Device {
  Device(int index, const DeviceModel& model, const kvcache::CacheConfig& config,
         const MemoryPlan& plan)
      : index(index),
        model(model),
        matrices(model, plan.with_copies, plan.arithmetic),
        cache(config, model.cache_shape(), plan.states),
        seen(model.vocab()),
        loras(model.layers()),
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
  model::cuda::DeviceLoras loras;
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

class CudaCopies : public HostCopies {
 public:
  CudaCopies(Device& device, std::size_t max_bytes)
      : device_(device), copies_(device.cache, max_bytes) {}

  std::unique_ptr<HostCopy> copy(const SequenceState& sequence,
                                 const FreeSome& free_some) override {
    device_.select();
    return copies_.copy(slot_of(&sequence), free_some, device_.stream.get());
  }
  RestoredCopy restore(const kvcache::SequenceLimits& limits, const HostCopy& copy) override {
    device_.select();
    const auto [slot, damaged] = copies_.restore(limits, copy, device_.stream.get());
    return {.sequence = slot ? std::make_unique<CudaSequence>(device_, *slot) : nullptr,
            .damaged = damaged};
  }
  [[nodiscard]] std::size_t used_bytes() const override { return copies_.used_bytes(); }

 private:
  Device& device_;
  PinnedCopies copies_;
};

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

  std::unique_ptr<HostCopies> make_host_copies(std::size_t max_bytes) override {
    device_.select();
    return std::make_unique<CudaCopies>(device_, max_bytes);
  }

  void prepare(const model::Lora& adapter) override {
    device_.select();
    device_.loras.of(adapter);
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
    // Consecutive shares of one kind run together; results are in the order of the shares.
    const bool verifies = verifies_drafts(shares);
    std::size_t row = 0;
    for (std::size_t first = 0; first < shares.size();) {
      std::size_t last = first + 1;
      const bool decodes = !verifies && is_decode(shares[first]);
      while (last < shares.size() && (!verifies && is_decode(shares[last])) == decodes &&
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

  float* stream_memory(std::size_t floats) override {
    device_.select();
    if (floats > stream_memory_.size()) {
      const std::size_t size = std::max(floats, 2 * stream_memory_.size());
      stream_memory_ = {};  // frees the old memory first
      stream_memory_ = winnow::cuda::PinnedBuffer<float>(size);
    }
    return stream_memory_.data();
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
  [[nodiscard]] bool forks_share_pages() const override { return !device_.cache.scores_entries(); }
  [[nodiscard]] PathNames last_paths() const override {
    return {.prompt = device_.prefill.last_path(), .step = device_.steps.last_path()};
  }

 private:
  // Whether the shares have drafts and few enough tokens for one pass over the weights.
  static bool verifies_drafts(std::span<const SequenceShare> shares) {
    std::size_t tokens = 0;
    bool drafts = false;
    for (const SequenceShare& share : shares) {
      tokens += share.tokens.size();
      drafts = drafts || (share.tokens.size() > 1 && share.logit_rows > 1);
    }
    return drafts && tokens <= std::size_t{kMostDrafted + 1};
  }

  // A captured step reports what queries see only for Quest.
  [[nodiscard]] bool is_decode(const SequenceShare& share) const {
    return share.tokens.size() == 1 && share.logit_rows == 1 && share.state.empty() &&
           share.input.states.rows == 0 &&
           (share.visible.data == nullptr || device_.cache.selects()) &&
           (share.adapter == nullptr || device_.steps.takes_adapters()) &&
           share.sequence->length() > 0 && device_.cache.steps_next(slot_of(share.sequence));
  }

  // The most sequences of one step.
  [[nodiscard]] std::size_t most_decoded() const {
    return static_cast<std::size_t>(device_.steps.most_sequences());
  }

  void check_tokens(std::span<const std::int32_t> tokens) const {
    const int vocab = device_.model.vocab();
    const auto& embedded = device_.model.spec().layer_embeddings;
    const int of_layers = embedded ? embedded->vocab : vocab;
    for (const std::int32_t token : tokens) {
      require(token >= 0 && token < vocab, "token {} is outside the vocabulary of {} tokens", token,
              vocab);
      require(token < of_layers, "token {} has no embedding for layers: there are {}", token,
              of_layers);
    }
  }

  const model::cuda::DeviceLora* adapter_of(const SequenceShare& share) {
    return share.adapter != nullptr ? &device_.loras.of(*share.adapter) : nullptr;
  }

  // How each row's token is chosen; empty if every row takes the most likely token.
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
    std::vector<const model::cuda::DeviceLora*> adapters;
    std::vector<model::StreamStates> streams;
    for (const SequenceShare& share : shares) {
      slots.push_back(slot_of(share.sequence));
      tokens.push_back(share.tokens.front());
      visible.push_back(share.visible);
      adapters.push_back(adapter_of(share));
      streams.push_back(share.stream);
    }
    if (std::ranges::all_of(adapters, [](const auto* adapter) { return adapter == nullptr; })) {
      adapters.clear();
    }
    device_.steps.run({.slots = slots,
                       .tokens = tokens,
                       .adapters = adapters,
                       .rows = rows,
                       .visible = visible,
                       .streams = streams},
                      logits, next, device_.stream);
  }

  void prefill(std::span<const SequenceShare> shares, std::span<const RowChoice> rows,
               ops::Matrix<float> logits, std::span<std::int32_t> next) {
    std::vector<model::cuda::PromptChunk> chunks;
    for (const SequenceShare& share : shares) {
      chunks.push_back({slot_of(share.sequence), share.tokens, share.logit_rows, share.visible,
                        share.state, adapter_of(share), share.stream, share.input});
    }
    device_.prefill.run(chunks, rows, logits, next, device_.stream);
  }

  mutable Device device_;
  winnow::cuda::PinnedBuffer<float> stream_memory_;
};

}  // namespace

std::unique_ptr<Runner> make_cuda_runner(int device, const DeviceModel& model,
                                         const kvcache::CacheConfig& config,
                                         const MemoryPlan& plan) {
  return std::make_unique<CudaRunner>(device, model, config, plan);
}

}  // namespace winnow::engine
