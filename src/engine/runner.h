// The engine's interface to a device: sequences that hold cache, and steps that extend them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/tensor.h"
#include "engine/host_copies.h"
#include "engine/request.h"
#include "engine/shared_part.h"
#include "kvcache/page_need.h"
#include "kvcache/rule.h"
#include "kvcache/saved_sequence.h"
#include "model/config.h"
#include "model/model.h"
#include "ops/matrix.h"
#include "ops/sampling.h"

namespace winnow::engine {

struct EngineConfig;

/// One sequence's cache. Frees its memory when destroyed; the Runner must outlive it.
class SequenceState {
 public:
  virtual ~SequenceState() = default;
  /// The part that it shares with the sequence from which it was forked, for the engine.
  std::shared_ptr<const SharedPart> shared;
  /// Tokens that the cache has taken.
  [[nodiscard]] virtual int length() const = 0;
  /// An independent continuation; null when there is no room for one.
  [[nodiscard]] virtual std::unique_ptr<SequenceState> fork() const = 0;
  /// What the cache holds now.
  [[nodiscard]] virtual CacheUsage usage() const = 0;
  /// Entries held now, summed over layers and heads.
  [[nodiscard]] virtual std::int64_t live_entries() const { return usage().live_entries; }
  /// Everything that the cache holds, for a file.
  [[nodiscard]] virtual kvcache::SavedSequence save() const = 0;
};

/// The next tokens of one sequence in a step.
struct SequenceShare {
  SequenceState* sequence = nullptr;
  std::span<const std::int32_t> tokens;
  /// Logits of the last `logit_rows` tokens are computed.
  std::size_t logit_rows = 1;
  /// Optional [T, layers * kv_heads]: receives the number of entries that each token's query saw.
  ops::Matrix<std::int32_t> visible;
  /// The rule that chooses the token after the last one. With a penalty, `history` has the tokens
  /// that count as seen, including these.
  ops::TokenRule rule = {};
  std::span<const std::int32_t> history = {};
  /// Optional: the allowed next tokens. Called once per step, on a device while it computes.
  ops::AllowTokens allow = {};
  /// Optional [hidden], needs logit_rows > 0: receives the last token's state after the final norm.
  std::span<float> state = {};
  /// Optional: an adapter of the model's projections.
  const model::Lora* adapter = nullptr;
  /// Optional, where the backend hands_out_stream(): receives states of all tokens between
  /// and behind layers.
  model::StreamStates stream = {};
  /// Of a head that drafts: what it takes beside tokens. `state` then receives what it takes for
  /// the row after the last one.
  model::HeadInput input = {};
  /// Optional, on CPUs: receives what attention takes, layer by layer.
  const model::AttentionListener* listener = nullptr;
};

/// The names of fast paths (docs/lab/internals.md) that linear layers took.
struct PathNames {
  std::string_view prompt;
  std::string_view step;
};

/// One cache, and everything needed to run steps on it. For one caller at a time.
class Runner {
 public:
  virtual ~Runner() = default;
  virtual std::unique_ptr<SequenceState> open(const kvcache::SequenceLimits& limits) = 0;
  /// A sequence restored from `saved`; null if there is no room. `saved` is valid for this cache
  /// and the rule that follows from `limits` (kvcache::validate).
  virtual std::unique_ptr<SequenceState> restore(const kvcache::SequenceLimits& limits,
                                                 const kvcache::SavedSequence& saved) = 0;
  /// At most `max_bytes` of the host's memory for copies of sequences. This runner must outlive it.
  virtual std::unique_ptr<HostCopies> make_host_copies(std::size_t max_bytes);
  /// Prepares an adapter for later shares. Throws Error if the device cannot run it or has no room
  /// for it.
  virtual void prepare(const model::Lora& /*adapter*/) {}
  /// The most that `tokens` more tokens of a sequence take.
  [[nodiscard]] virtual kvcache::PageNeed need(const SequenceState& sequence, int tokens) const = 0;
  /// Whether the cache has room for this much more.
  [[nodiscard]] virtual bool has_room(const kvcache::PageNeed& need) const = 0;
  /// Appends every share's tokens, for which the cache has_room(). `next` [sum of logit_rows]
  /// receives the next tokens: in a share's last row the rule's choice, in others the most likely
  /// (the first on a tie). `logits` [sum of logit_rows, vocab]: all logits. Each may be empty.
  virtual void forward(std::span<const SequenceShare> shares, ops::Matrix<float> logits,
                       std::span<std::int32_t> next) = 0;
  /// Memory of the host for states that shares receive (SequenceShare::stream), which the device
  /// copies fast. Valid until the next call.
  virtual float* stream_memory(std::size_t floats) {
    stream_.ensure(floats);
    return stream_.data();
  }
  /// Bytes of all pages and states of recurrent layers that sequences hold.
  [[nodiscard]] virtual std::size_t page_bytes() const = 0;
  /// Bytes of the states alone.
  [[nodiscard]] virtual std::size_t state_bytes() const { return 0; }
  /// The limit of page_bytes().
  [[nodiscard]] virtual std::size_t capacity_bytes() const = 0;
  /// Whether a fork shares the pages of its origin; else it is a copy.
  [[nodiscard]] virtual bool forks_share_pages() const = 0;
  /// What the last prompt and the last step took; empty if unknown.
  [[nodiscard]] virtual PathNames last_paths() const { return {}; }

 private:
  Buffer<float> stream_;
};

/// A model on a device.
class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual const model::ModelSpec& spec() const = 0;
  /// The shape of every runner's cache.
  [[nodiscard]] virtual kvcache::CacheShape cache_shape() const = 0;
  /// Bytes of all weights that a decode step of `sequences` sequences reads. Of experts it counts
  /// the expected number if each token chooses at random.
  [[nodiscard]] virtual std::size_t weight_bytes_per_step(int sequences) const = 0;
  /// The highest rate at which the device reads memory, in bytes per second; measured at each call.
  [[nodiscard]] virtual double read_bandwidth() const = 0;
  /// Bytes of the device's own memory that this or other processes use now; nullopt: it uses the
  /// host's memory.
  [[nodiscard]] virtual std::optional<std::size_t> memory_in_use() const = 0;
  /// How ranks on devices exchange results: "memory" (each other's) or "nccl"; else empty.
  [[nodiscard]] virtual std::string_view rank_exchange() const { return {}; }
  /// Whether its runners fill SequenceShare::stream.
  [[nodiscard]] virtual bool hands_out_stream() const { return false; }
  /// Makes a runner with its own cache. `tokens` > 0: the most that its sequences hold together.
  [[nodiscard]] virtual std::unique_ptr<Runner> make_runner(const EngineConfig& config,
                                                            int tokens = 0) const = 0;
};

/// A backend for `model`, which must outlive it, on the device that `config` names.
std::unique_ptr<Backend> make_backend(const model::Model& model, const EngineConfig& config);

}  // namespace winnow::engine
