// One rank of a group that runs a model together. Every member executes rank 0's commands with its
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

/// Commands, with the values that follow in the message -> the values of the answer. An answer
/// begins with whether the command succeeded; if not, the error's text follows.
enum class RankCommand : std::uint8_t {
  end,           // -> nothing: ends the group
  make_runner,   // runner, EngineConfig, tokens -> capacity_bytes, forks_share_pages
  drop_runner,   // runner -> nothing
  open,          // runner, sequence, SequenceLimits -> nothing
  restore,       // runner, sequence, SequenceLimits, whole SavedSequence -> whether there was room
  fork,          // sequence, its copy -> whether there was room
  close,         // sequence -> nothing
  need,          // sequence, tokens -> PageNeed
  has_room,      // runner, PageNeed -> whether there is room
  forward,       // runner, shares -> as bytes, per share: live entries of heads that count, need
                 // of a token, visible
  usage,         // sequence -> CacheUsage
  save,          // sequence -> SavedSequence
  bytes,         // runner -> page_bytes, state_bytes
  weight_bytes,  // sequences -> weight_bytes_per_step
  make_copies,   // runner, bytes of all ranks -> nothing
  copy,          // sequence, its copy -> whether there was room, bytes
  restore_copy,  // runner, sequence, SequenceLimits, copy -> whether it is there, whether damaged
  save_copy,     // copy -> whether it is whole; if so, SavedSequence
  drop_copy,     // copy -> nothing
};

/// The results of a forward pass that only rank 0 wants.
struct StepResults {
  ops::Matrix<float> logits;
  std::span<std::int32_t> next;
  std::span<const SequenceShare> shares;  // with the rules by which tokens are chosen
};

class Member {
 public:
  /// `local` runs this rank's part of `whole`; both must outlive it.
  Member(const Backend& local, const model::ModelSpec& whole, const model::Shard& shard);

  /// Executes a message's command and returns the answer for rank 0. An error is an answer, too,
  /// but an error in a forward pass, where ranks wait for each other, is thrown.
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
  // member_copies.cc
  void make_copies(MessageReader& message);
  void copy(MessageReader& message, MessageWriter& answer);
  void restore_copy(MessageReader& message, MessageWriter& answer);
  void save_copy(MessageReader& message, MessageWriter& answer);
  [[nodiscard]] Runner& runner(int id) { return *runners_.at(id).runner; }
  // This rank's part of memory that all ranks share.
  [[nodiscard]] std::size_t share_of(std::size_t bytes) const;
  // Entries of the KV heads that count on this rank (counts_heads()).
  [[nodiscard]] std::int64_t live_entries(const SequenceState& sequence) const;

  struct OwnRunner {
    std::unique_ptr<Runner> runner;
    kvcache::CacheConfig cache;
    std::unique_ptr<HostCopies> copies;
  };

  const Backend& local_;
  const model::ModelSpec& whole_;
  kvcache::CacheShape whole_shape_;
  model::Shard shard_;
  std::vector<bool> counts_;  // by own KV head
  std::map<int, OwnRunner> runners_;
  std::map<int, Held> sequences_;  // declared after the runners, which must outlive them
  std::map<int, std::unique_ptr<HostCopy>> copies_;  // likewise
  bool ended_ = false;
};

/// The need of one rank, without the others.
void put(MessageWriter& message, const kvcache::PageNeed& need);
kvcache::PageNeed take_need(MessageReader& message);

/// Sends a message from rank 0 to all others.
void send_to_all(parallel::Communicator& ranks, std::span<const std::byte> message);
/// Receives a message of send_to_all().
std::vector<std::byte> receive_from_first(parallel::Communicator& ranks);

/// Executes rank 0's commands until it ends the group. An error of this rank ends the group, too:
/// it is thrown as an Error that names the rank.
void obey_first(Member& member, parallel::Communicator& ranks);

}  // namespace winnow::engine
