// One rank of a group that runs a model together: what rank 0 commands, every member does with its
// own part of the model and of the cache.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/ranks/message.h"
#include "engine/ranks/saved_shards.h"
#include "engine/runner.h"
#include "model/shard.h"
#include "parallel/communicator.h"

namespace winnow::engine {

/// What follows a command in its message, and what members answer: first whether it could be done;
/// else the error's text.
enum class RankCommand : std::uint8_t {
  end,          // -> nothing: the group is over
  make_runner,  // runner, EngineConfig, tokens -> capacity_bytes, forks_share_pages
  drop_runner,  // runner -> nothing
  open,         // runner, sequence, SequenceLimits -> nothing
  restore,      // runner, sequence, SequenceLimits, the whole's SavedSequence -> there was room
  fork,         // sequence, its copy -> there was room
  close,        // sequence -> nothing
  need,         // sequence, tokens -> PageNeed
  has_room,     // runner, PageNeed -> whether there is
  forward,  // runner, shares -> as bytes; of each share: live entries, the need of a token, visible
  usage,    // sequence -> CacheUsage
  save,     // sequence -> SavedSequence
  bytes,    // runner -> page_bytes, state_bytes
  weight_bytes,  // sequences -> weight_bytes_per_step
};

/// What rank 0 alone wants of a forward pass.
struct StepResults {
  ops::Matrix<float> logits;
  std::span<std::int32_t> next;
  std::span<const SequenceShare> shares;  // for the rules by which tokens are chosen
};

class Member {
 public:
  /// `local` runs this rank's part of `whole`; both must outlive it.
  Member(const Backend& local, const model::ModelSpec& whole, const model::Shard& shard);

  /// Does what the message says; the answer is for rank 0. An error is an answer, too. Only that of
  /// a forward pass, in which ranks wait for each other, is thrown.
  MessageWriter obey(std::span<const std::byte> message, const StepResults* results = nullptr);
  [[nodiscard]] bool has_ended() const { return ended_; }

 private:
  struct Held {
    int runner = 0;
    kvcache::SequenceLimits limits;
    std::unique_ptr<SequenceState> state;
  };

  void do_command(MessageReader& message, MessageWriter& answer, const StepResults* results);
  void make_runner(MessageReader& message, MessageWriter& answer);
  void restore(MessageReader& message, MessageWriter& answer);
  void fork(MessageReader& message, MessageWriter& answer);
  void forward(MessageReader& message, MessageWriter& answer, const StepResults* results);
  [[nodiscard]] Runner& runner(int id) { return *runners_.at(id).runner; }

  struct OwnRunner {
    std::unique_ptr<Runner> runner;
    kvcache::CacheConfig cache;
  };

  const Backend& local_;
  const model::ModelSpec& whole_;
  kvcache::CacheShape whole_shape_;
  model::Shard shard_;
  std::map<int, OwnRunner> runners_;
  std::map<int, Held> sequences_;  // after the runners, which must outlive them
  bool ended_ = false;
};

/// What one rank needs, without the others.
void put(MessageWriter& message, const kvcache::PageNeed& need);
kvcache::PageNeed take_need(MessageReader& message);

/// Sends a message from rank 0 to all others.
void send_to_all(parallel::Communicator& ranks, std::span<const std::byte> message);
/// The other end of it.
std::vector<std::byte> receive_from_first(parallel::Communicator& ranks);

/// Obeys rank 0 until it ends the group. An error of this rank ends the group, too.
void obey_first(Member& member, parallel::Communicator& ranks);

}  // namespace winnow::engine
