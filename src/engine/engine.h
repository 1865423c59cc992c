// The engine: requests in, tokens out, a batch of sequences at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/stopwatch.h"
#include "engine/drafter.h"
#include "engine/expected_peak.h"
#include "engine/host_tier.h"
#include "engine/keep_estimate.h"
#include "engine/prefix_cache.h"
#include "engine/request.h"
#include "engine/runner.h"

namespace winnow::engine {

class PrefixStore;
class StateSource;

/// How weights are held in memory.
enum class WeightStorage : std::uint8_t { as_stored, fp8, int8, int4 };

struct EngineConfig {
  kvcache::CacheConfig cache;
  DType compute = DType::bf16;  // bf16 or f32, see ops::Context
  bool deterministic = false;   // results do not depend on batching or chunking, to the last bit
  int step_tokens = 512;        // most tokens per step: long prompts are cut into chunks
  int max_sequences = 256;      // the most that hold cache at a time
  int draft_tokens = 0;         // the most drafted tokens per sequence and step; 0: no drafts
  const Backend* draft_model = nullptr;  // drafts; must outlive the engine; null: prompt lookup
  kvcache::CacheConfig draft_cache;      // the draft model's
  bool reuse_prefixes =
      false;  // finished sequences keep their cache for others with the same prefix
  // Prefixes are dropped while the pages that running sequences do not hold are more than this.
  // nullopt: only when those need the room; on a CPU whose cache has no limit, a quarter of it.
  std::optional<std::size_t> prefix_bytes;
  std::size_t host_bytes = 0;  // of the host's memory for prefixes and preempted sequences
  // Of a cache that takes all there is (kAllThereIs): the part of it that a runner takes, the same
  // for the draft model's runner, and what a CPU's runner leaves to others.
  double cache_part = 1.0;
  double draft_cache_part = 0.0;
  std::size_t other_bytes = 0;
  PrefixListener* prefix_listener = nullptr;  // must outlive the engine
  WeightStorage weights = WeightStorage::as_stored;
  bool fp8_products = false;       // for prompts and large batches, with fp8 weights on a device
  std::optional<int> cuda_device;  // nullopt: the CPU
  int ranks = 1;                   // each with a part of the model
  bool ranks_use_nccl = false;     // on devices, even where these reach each other's memory
};

/// Tokens that went through the model, and the time they took.
struct Throughput {
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_tokens = 0;
  double prefill_seconds = 0.0;  // steps with any prompt tokens
  double decode_seconds = 0.0;
};

/// The engine's counters.
struct EngineStats {
  std::size_t running = 0;  // sequences that hold cache
  std::size_t waiting = 0;
  std::size_t prefixes = 0;  // states in the prefix cache
  std::size_t page_bytes = 0;
  std::size_t running_bytes = 0;  // part of page_bytes, estimated: not only of idle prefixes
  std::size_t state_bytes = 0;    // part of page_bytes: states of recurrent layers
  std::size_t capacity_bytes = 0;
  std::int64_t preemptions = 0;
  std::int64_t steps = 0;
  std::int64_t drafts = 0;  // that steps have verified
  std::int64_t drafted_tokens = 0;
  std::int64_t accepted_tokens = 0;  // part of drafted_tokens
  DraftMemory draft_memory;          // of a draft model
  std::int64_t prompt_tokens = 0;    // of sequences that have started; computed or reused
  std::int64_t reused_tokens = 0;    // part of prompt_tokens: found in the cache
  std::int64_t prefix_hits = 0;      // sequences that found a prefix
  std::int64_t prefix_misses = 0;
  std::optional<HostTierStats> host;  // with EngineConfig::host_bytes
  double plan_seconds = 0.0;          // planning: choosing the sequences of a step
  double draft_seconds = 0.0;         // drafting
  double forward_seconds = 0.0;       // the model, and choosing tokens on the device
  double sample_seconds = 0.0;        // choosing tokens on the host, finishing, prefixes
};

/// Continuous batching with chunked prefill over one compressed cache.
///
/// A step takes one token of every decoding sequence, followed by its draft, and divides its other
/// tokens among prompts (token_budget.h). So no sequence starves, and no step is longer than
/// config.step_tokens and the decoding sequences. New sequences are admitted in order while the
/// cache is expected to hold what they will need (expected_peak.h), but short prompts pass long
/// ones that have no place (token_budget.h), and a sequence waits while another one reads the
/// tokens with which both begin. If pages run out nevertheless, unused prefixes are dropped first.
/// Then the youngest sequence of the last priority is preempted: its pages are freed, and it is
/// computed again later.
/// With config.host_bytes, prefixes and preempted sequences move to the host's memory instead, as
/// far as there is room (host_tier.h). A request only fails when it does not fit alone. Not
/// thread-safe: one caller drives it.
class Engine {
 public:
  /// `backend`, `store` and `remote` (these two may be null) must outlive the engine. The store
  /// keeps prefixes that do not fit into memory. `remote` is asked for prefixes that the store does
  /// not have.
  Engine(const Backend& backend, const EngineConfig& config, PrefixStore* store = nullptr,
         StateSource* remote = nullptr);
  ~Engine();

  /// Prepares an adapter for later requests. Throws Error where the device cannot run it.
  void prepare(const model::Lora& adapter) { runner_->prepare(adapter); }
  /// Queues a request, or throws the errors of validate().
  RequestId submit(Request request);
  /// Ends all samples of a request; their last events come with the next step.
  void cancel(RequestId request);
  /// Drops a request without using the device, which may have failed. No further events of the
  /// request follow. To be called between steps.
  void give_up(RequestId request) noexcept;
  /// Ends one sample that has produced a token, as a stop token would.
  void stop(RequestId request, int sample);
  [[nodiscard]] bool idle() const { return waiting_.empty() && running_.empty(); }

  /// Runs one batch and returns what it produced.
  std::vector<TokenEvent> step();
  /// Traces of the last step.
  std::vector<CacheTrace> take_traces() { return std::exchange(traces_, {}); }

  /// What a sample's cache holds now; zeros while it has none. To be called between steps.
  [[nodiscard]] CacheUsage usage(RequestId request, int sample) const;
  /// What a finished sample's cache held. Can be called once per sample.
  CacheUsage take_usage(RequestId request, int sample);
  /// Drops all prefixes.
  void drop_prefixes();
  /// Writes one more prefix worth keeping to the store; false if all are there.
  bool store_prefix();

  [[nodiscard]] const Throughput& throughput() const { return throughput_; }
  /// Bytes of all pages that sequences and prefixes hold.
  [[nodiscard]] std::size_t page_bytes() const { return runner_->page_bytes(); }
  [[nodiscard]] const EngineConfig& config() const { return config_; }
  [[nodiscard]] std::int64_t preemptions() const { return stats_.preemptions; }
  [[nodiscard]] EngineStats stats() const;

 private:
  struct Sequence;
  using SequencePtr = std::unique_ptr<Sequence>;
  // A sequence's share of a step.
  struct Share {
    Sequence* sequence;
    int tokens;
    int rows;  // rows of logits, for its last tokens
    kvcache::PageNeed need;
  };

  // engine_memory.cc: what sequences hold and will need.
  void observe_one();
  [[nodiscard]] bool never_fits(int tokens) const;
  [[nodiscard]] bool is_expected_to_fit(const Sequence& sequence) const;
  std::shared_ptr<const SharedPart> known_part(const Sequence& sequence);
  static void add_shared(const Sequence& sequence, SharedTokens& shared);
  [[nodiscard]] std::size_t running_bytes(std::size_t page_bytes) const;
  [[nodiscard]] double expected_bytes(int tokens, int shared) const;
  [[nodiscard]] Growing growing(const Sequence& sequence) const;

  // engine_plan.cc: chooses the sequences of the next step.
  std::vector<Share> plan(std::vector<TokenEvent>& events);
  std::vector<Share> deal_step();
  [[nodiscard]] std::vector<Sequence*> without_share(std::span<const Share> shares) const;
  bool claim(Sequence& sequence, int wanted, std::vector<Share>& shares);
  [[nodiscard]] int admissible_tokens(const Sequence& sequence, int wanted,
                                      const std::vector<Share>& shares) const;
  bool make_room(const Sequence& sequence, std::vector<Share>& shares);
  std::vector<SequencePtr>::iterator victim();
  void preempt(std::vector<SequencePtr>::iterator place, std::vector<Share>& shares);
  void admit(std::vector<Share>& shares);
  [[nodiscard]] int most_tokens(const Sequence& sequence) const;
  void ask_sources(Sequence& sequence);
  void wait_for_states() const;
  bool follows_another(Sequence& sequence, std::span<Sequence* const> readers);
  [[nodiscard]] static int common_unread(const Sequence& sequence, const Sequence& reader);
  [[nodiscard]] bool may_begin_with_a_prefix(const Sequence& sequence) const;
  bool open_cache(Sequence& sequence);
  void count_admitted(Sequence& sequence);
  void open_known(Sequence& sequence);
  void open_coming(Sequence& sequence, int known);

  // engine_host.cc: the host's memory.
  void set_aside(Sequence& sequence);
  void restore_set_aside(Sequence& sequence);
  int open_hosted(Sequence& sequence, int known);
  RestoredCopy restore(const kvcache::SequenceLimits& limits, const HostCopy& copy);

  // engine_run.cc: the step itself.
  void run(std::span<const Share> shares);
  std::vector<CacheTrace> watch(std::span<const Share> shares,
                                std::span<SequenceShare> steps) const;
  void count_reads(std::span<const Share> shares, std::span<const SequenceShare> steps);
  void sample_all(std::span<const Share> shares, std::vector<TokenEvent>& events);
  void show_logits(const Share& share, std::size_t row) const;
  [[nodiscard]] std::vector<std::vector<float>> ask_for_states(
      std::span<const Share> shares, std::span<SequenceShare> steps) const;
  void score_prompt(const Share& share, std::size_t row, std::vector<TokenEvent>& events);
  void leave_prefix(Sequence& sequence);
  void keep_prefix(Sequence& sequence, std::unique_ptr<SequenceState> state,
                   PrefixCache::Purpose purpose);
  static std::shared_ptr<const SharedPart> share(Sequence& sequence, int length);
  bool drop_prefix();
  static void save_prompt(Sequence& sequence);
  std::vector<SequencePtr> fork_samples(Sequence& first);
  std::int32_t choose(Sequence& sequence, std::span<float> logits) const;
  void accept(Sequence& sequence, std::size_t row, bool from_logits,
              std::vector<TokenEvent>& events);

  // engine_draft.cc: speculation.
  [[nodiscard]] int rows_for_drafts() const;
  void draft();
  void ask_for_stream(std::span<const Share> shares, std::span<SequenceShare> steps);
  void tell_drafter(std::span<const Share> shares, std::span<const SequenceShare> steps);
  [[nodiscard]] bool may_ask_for_drafts(const Sequence& sequence) const;
  [[nodiscard]] int tokens_to_draft(Sequence& sequence, int rows) const;
  void begin_draft(Sequence& sequence, std::vector<std::int32_t> draft);
  [[nodiscard]] bool may_draft(const Sequence& sequence) const;
  void drop_drafts();
  bool drop_drafts(std::vector<Share>& shares);
  void verify(Sequence& sequence, std::size_t row, std::vector<TokenEvent>& events);
  static void take_back(Sequence& sequence);
  void catch_up(Sequence& sequence);

  void finish(Sequence& sequence, FinishReason reason);
  void remove_finished(std::vector<TokenEvent>& events);

  const model::ModelSpec& model_;
  kvcache::CacheShape shape_;
  EngineConfig config_;
  std::unique_ptr<Drafter> drafter_;  // made first: the runner may take all memory that is left
  std::unique_ptr<Runner> runner_;
  PrefixStore* store_;
  StateSource* remote_;
  std::unique_ptr<HostTier> host_;  // null: there is none
  PrefixCache prefixes_;
  std::size_t prefix_bytes_ = 0;
  KeepEstimate estimate_;
  std::deque<SequencePtr> waiting_;   // hold no cache
  std::vector<SequencePtr> running_;  // oldest first
  std::map<std::pair<RequestId, int>, CacheUsage> usage_;
  Buffer<float> logits_;            // of a step; empty if `next_` is enough
  std::vector<std::int32_t> next_;  // the tokens that a step's runner has chosen
  std::vector<CacheTrace> traces_;
  RequestId next_id_ = 1;
  bool crowded_ = false;  // a sequence was preempted and none has finished since: admit no new ones
  bool reads_prompts_ = false;  // whether the current or last step has prompt tokens
  EngineStats stats_;
  Throughput throughput_;
  Stopwatch step_clock_;
};

}  // namespace winnow::engine
