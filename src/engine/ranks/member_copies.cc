// A rank's parts of copies in the host's memory.
#include <optional>
#include <utility>

#include "engine/ranks/member.h"

namespace winnow::engine {

void Member::make_copies(MessageReader& message) {
  OwnRunner& own = runners_.at(message.take<int>());
  own.copies = own.runner->make_host_copies(share_of(message.take<std::size_t>()));
}

// Rank 0 frees room, on all ranks.
void Member::copy(MessageReader& message, MessageWriter& answer) {
  const Held& held = sequences_.at(message.take<int>());
  HostCopies& copies = *runners_.at(held.runner).copies;
  const std::size_t before = copies.used_bytes();
  auto made = copies.copy(*held.state, [] { return false; });
  answer.put(made != nullptr);
  answer.put(copies.used_bytes() - before);
  copies_[message.take<int>()] = std::move(made);
}

void Member::restore_copy(MessageReader& message, MessageWriter& answer) {
  const int id = message.take<int>();
  const int sequence = message.take<int>();
  const auto limits = message.take<kvcache::SequenceLimits>();
  const HostCopy& from = *copies_.at(message.take<int>());
  RestoredCopy restored = runners_.at(id).copies->restore(limits, from);
  answer.put(restored.sequence != nullptr);
  answer.put(restored.damaged);
  sequences_[sequence] = {id, limits, std::move(restored.sequence)};
}

void Member::save_copy(MessageReader& message, MessageWriter& answer) {
  const std::optional<kvcache::SavedSequence> saved = copies_.at(message.take<int>())->save();
  answer.put(saved.has_value());
  if (saved) {
    put(answer, *saved);
  }
}

}  // namespace winnow::engine
