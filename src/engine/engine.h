// The engine: requests in, tokens out, a batch of sequences at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/request.h"
#include "kvcache/sequence_cache.h"
#include "model/model.h"

namespace winnow::engine {

struct EngineConfig {
  kvcache::CacheConfig cache;
  DType compute = DType::bf16;  // bf16 or f32, see ops::Context
  bool deterministic = false;   // results do not depend on batching or chunking, to the last bit
  int step_tokens = 512;        // most tokens per step: long prompts are cut into chunks
  int max_sequences = 256;      // that hold cache at a time
};

/// Tokens that went through the model, and the time that took.
struct Throughput {
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_tokens = 0;
  double prefill_seconds = 0.0;  // of steps with any prompt tokens in them
  double decode_seconds = 0.0;
};

/// What a sequence's cache holds now.
CacheUsage usage_of(const kvcache::SequenceCache& cache);

/// Continuous batching with chunked prefill over one compressed cache. When pages run out the
/// youngest sequence gives its pages back and is computed again later; a request only fails when it
/// does not fit alone. Not thread-safe: one caller drives it.
class Engine {
 public:
  /// `model` must outlive the engine.
  Engine(const model::Model& model, const EngineConfig& config);
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
  [[nodiscard]] kvcache::Cache& cache() { return cache_; }
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
  int admissible_tokens(const Sequence& sequence, int wanted, const std::vector<Share>& shares);
  bool preempt_youngest(const Sequence& except, std::vector<Share>& shares);
  void admit(std::vector<Share>& shares, int& budget);
  void run(std::span<const Share> shares);
  void sample_all(std::span<const Share> shares, std::vector<TokenEvent>& events);
  void fork_samples(Sequence& first);
  void accept(Sequence& sequence, std::span<const float> logits, std::vector<TokenEvent>& events);
  void finish(Sequence& sequence, FinishReason reason);
  void remove_finished(std::vector<TokenEvent>& events);

  const model::Model& model_;
  EngineConfig config_;
  kvcache::Cache cache_;
  ops::Workspace workspace_;
  ops::Context context_;
  std::deque<SequencePtr> waiting_;   // hold no cache
  std::vector<SequencePtr> running_;  // oldest first
  std::map<std::pair<RequestId, int>, CacheUsage> usage_;
  Buffer<float> logits_;
  RequestId next_id_ = 1;
  std::int64_t preemptions_ = 0;
  Throughput throughput_;
};

}  // namespace winnow::engine
