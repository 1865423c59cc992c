// A draft in the making, by a drafter whose model has a runner of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/drafter.h"
#include "engine/runner.h"
#include "engine/token_constraint.h"

namespace winnow::engine {

/// Calls after which a sequence that has not asked for drafts gives up its cache. Longer than the
/// pauses of DraftLength: otherwise two sequences might read their prompts again and again in turn.
inline constexpr std::uint64_t kIdleCalls = 100;

/// A task that wants up to `most` tokens.
struct DraftJob {
  DraftTask* task = nullptr;
  int most = 0;
  std::unique_ptr<TokenConstraint> constraint = {};  // after the draft so far; may be null

  DraftJob(DraftTask& wanted, int tokens)
      : task(&wanted),
        most(tokens),
        constraint(wanted.constraint != nullptr ? wanted.constraint->fork() : nullptr) {}

  /// A share that takes `tokens`. The last one's choice is a draft if `drafts`.
  [[nodiscard]] SequenceShare share(SequenceState& sequence, std::span<const std::int32_t> tokens,
                                    bool drafts) const {
    SequenceShare share;
    share.sequence = &sequence;
    share.tokens = tokens;
    share.logit_rows = drafts ? 1 : 0;
    if (drafts && constraint) {
      share.allow = [this](std::span<std::uint64_t> allowed) { constraint->allow(allowed); };
    }
    return share;
  }

  /// Adds a token to the draft. Returns whether another one may follow.
  bool add(std::int32_t token) {
    if (token == ops::kNoToken) {
      return false;
    }
    task->draft.push_back(token);
    const bool ends = std::ranges::find(task->stop_tokens, token) != task->stop_tokens.end();
    if (ends || static_cast<int>(task->draft.size()) == most) {
      return false;
    }
    if (constraint) {
      constraint->accept(token);
    }
    return true;
  }
};

/// Makes room for the shares by free_more(), which returns false when nothing more can be freed, or
/// leaves out the last ones. Returns the jobs of these.
template <class Job, class FreeMore>
std::vector<Job> leave_out_without_room(const Runner& runner, std::vector<Job>& jobs,
                                        std::vector<SequenceShare>& shares,
                                        const FreeMore& free_more) {
  std::vector<Job> left_out;
  const auto has_room = [&] {
    kvcache::PageNeed need;
    for (const SequenceShare& share : shares) {
      need += runner.need(*share.sequence, static_cast<int>(share.tokens.size()));
    }
    return runner.has_room(need);
  };
  while (!shares.empty() && !has_room()) {
    if (!free_more()) {
      left_out.push_back(jobs.back());
      jobs.pop_back();
      shares.pop_back();
    }
  }
  return left_out;
}

}  // namespace winnow::engine
