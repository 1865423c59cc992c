#include "engine/ranks/ranked_copies.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

namespace winnow::engine {
namespace {

// The Members hold its parts under the same id.
class RankedCopy : public HostCopy {
 public:
  RankedCopy(Group& group, const RunnerSettings& runner, const RankedSequence& of,
             std::size_t& used)
      : group_(group),
        runner_(runner),
        id_(group.new_id()),
        limits_(of.limits()),
        length_(of.length()),
        used_(used) {}
  ~RankedCopy() override {
    used_ -= bytes_;
    try {
      group_.ask(RankCommand::drop_copy, [this](MessageWriter& message) { message.put(id_); });
    } catch (const std::exception&) {  // a rank has failed: nothing is left to drop
    }
  }
  RankedCopy(const RankedCopy&) = delete;
  RankedCopy& operator=(const RankedCopy&) = delete;

  [[nodiscard]] int length() const override { return length_; }
  [[nodiscard]] std::optional<kvcache::SavedSequence> save() const override {
    auto answers =
        group_.ask(RankCommand::save_copy, [this](MessageWriter& message) { message.put(id_); });
    bool whole = true;
    for (RankAnswer& answer : answers) {
      whole = answer.take<bool>() && whole;
    }
    return whole ? std::optional(join_saved(group_, runner_, limits_, answers)) : std::nullopt;
  }

  [[nodiscard]] int id() const { return id_; }
  /// Records the bytes that its parts take.
  void takes(std::size_t bytes) {
    bytes_ = bytes;
    used_ += bytes;
  }

 private:
  Group& group_;
  RunnerSettings runner_;
  int id_;
  kvcache::SequenceLimits limits_;
  int length_;
  std::size_t bytes_ = 0;
  std::size_t& used_;  // by all copies
};

class RankedCopies : public HostCopies {
 public:
  RankedCopies(Group& group, const RunnerSettings& runner, std::size_t max_bytes)
      : group_(group), runner_(runner) {
    group_.ask(RankCommand::make_copies, [&](MessageWriter& message) {
      message.put(runner_.id);
      message.put(max_bytes);
    });
  }

  // Ranks that had room drop their parts before others get more of it.
  std::unique_ptr<HostCopy> copy(const SequenceState& sequence,
                                 const FreeSome& free_some) override {
    const auto& of = static_cast<const RankedSequence&>(sequence);
    do {
      auto made = std::make_unique<RankedCopy>(group_, runner_, of, used_);
      if (const auto bytes = copy_parts(of, *made)) {
        made->takes(*bytes);
        return made;
      }
    } while (free_some());
    return nullptr;
  }

  RestoredCopy restore(const kvcache::SequenceLimits& limits, const HostCopy& copy) override {
    auto sequence =
        std::make_unique<RankedSequence>(group_, runner_, group_.new_id(), limits, copy.length());
    bool room = true;
    bool damaged = false;
    for (RankAnswer& answer : group_.ask(RankCommand::restore_copy, [&](MessageWriter& message) {
           message.put(runner_.id);
           message.put(sequence->id());
           message.put(limits);
           message.put(static_cast<const RankedCopy&>(copy).id());
         })) {
      room = answer.take<bool>() && room;
      damaged = answer.take<bool>() || damaged;
    }
    if (!room) {
      sequence.reset();  // on all ranks
    }
    return {.sequence = std::move(sequence), .damaged = damaged};
  }

  [[nodiscard]] std::size_t used_bytes() const override { return used_; }

 private:
  // The bytes of all parts; nullopt if a rank has no room for its part.
  std::optional<std::size_t> copy_parts(const RankedSequence& sequence, const RankedCopy& copy) {
    std::size_t bytes = 0;
    bool room = true;
    for (RankAnswer& answer : group_.ask(RankCommand::copy, [&](MessageWriter& message) {
           message.put(sequence.id());
           message.put(copy.id());
         })) {
      room = answer.take<bool>() && room;
      bytes += answer.take<std::size_t>();
    }
    return room ? std::optional(bytes) : std::nullopt;
  }

  Group& group_;
  RunnerSettings runner_;
  std::size_t used_ = 0;
};

}  // namespace

std::unique_ptr<HostCopies> make_ranked_copies(Group& group, const RunnerSettings& runner,
                                               std::size_t max_bytes) {
  return std::make_unique<RankedCopies>(group, runner, max_bytes);
}

}  // namespace winnow::engine
