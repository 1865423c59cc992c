// The engine: requests in, tokens out, a batch of sequences at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/request.h"
#include "engine/runner.h"

namespace winnow::engine {

/// How weights are held in memory.
enum class WeightStorage : std::uint8_t { as_stored, fp8, int8, int4 };

struct EngineConfig {
  kvcache::CacheConfig cache;
  DType compute = DType::bf16;  // bf16 or f32, see ops::Context
  bool deterministic = false;   // results do not depend on batching or chunking, to the last bit
  int step_tokens = 512;        // most tokens per step: long prompts are cut into chunks
  int max_sequences = 256;      // that hold cache at a time
  WeightStorage weights = WeightStorage::as_stored;
  std::optional<int> cuda_device;  // nullopt: the CPU
};

/// Tokens that went through the model, and the time that took.
struct Throughput {
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_tokens = 0;
  double prefill_seconds = 0.0;  // of steps with any prompt tokens in them
  double decode_seconds = 0.0;
};

/// Continuous batching with chunked prefill over one compressed cache. When pages run out the
/// youngest sequence gives its pages back and is computed again later; a request only fails when it
/// does not fit alone. Not thread-safe: one caller drives it.
class Engine {
 public:
  /// `backend` must outlive the engine.
  Engine(const Backend& backend, const EngineConfig& config);
  ~Engine();

  /// Queues a request. Throws Error when it can never be served (empty prompt, unknown token,
  /// longer than the model's positions, bad sampling parameters).
  RequestId submit(Request request);
  /// Ends all samples of a request; their last events come with the next step.
  void cancel(RequestId request);
  [[nodiscard]] bool idle() const { return waiting_.empty() && running_.empty(); }

  /// Runs one batch and returns what it produced.
  std::vector<TokenEvent> step();

  /// What a finished sample's cache held; forgotten once read.
  CacheUsage take_usage(RequestId request, int sample);

  [[nodiscard]] const Throughput& throughput() const { return throughput_; }
  /// Bytes of all pages that sequences hold.
  [[nodiscard]] std::size_t page_bytes() const { return runner_->page_bytes(); }
  [[nodiscard]] const EngineConfig& config() const { return config_; }
  [[nodiscard]] std::int64_t preemptions() const { return preemptions_; }

 private:
  struct Sequence;
  using SequencePtr = std::unique_ptr<Sequence>;
  // A sequence's share of a step.
  struct Share {
    Sequence* sequence;
    int tokens;
  };

  std::vector<Share> plan(std::vector<TokenEvent>& events);
  [[nodiscard]] int admissible_tokens(const Sequence& sequence, int wanted,
                                      const std::vector<Share>& shares) const;
  bool preempt_youngest(const Sequence& except, std::vector<Share>& shares);
  void admit(std::vector<Share>& shares, int& budget);
  void run(std::span<const Share> shares);
  void sample_all(std::span<const Share> shares, std::vector<TokenEvent>& events);
  std::vector<SequencePtr> fork_samples(Sequence& first);
  void accept(Sequence& sequence, std::size_t row, bool from_logits,
              std::vector<TokenEvent>& events);
  void finish(Sequence& sequence, FinishReason reason);
  void remove_finished(std::vector<TokenEvent>& events);

  const ModelConfig& model_;
  EngineConfig config_;
  std::unique_ptr<Runner> runner_;
  std::deque<SequencePtr> waiting_;   // hold no cache
  std::vector<SequencePtr> running_;  // oldest first
  std::map<std::pair<RequestId, int>, CacheUsage> usage_;
  Buffer<float> logits_;            // of a step, empty when nobody needs more than `next_`
  std::vector<std::int32_t> next_;  // the tokens that a step has chosen
  RequestId next_id_ = 1;
  std::int64_t preemptions_ = 0;
  Throughput throughput_;
};

}  // namespace winnow::engine
