#include "engine/ranks/ranked_sequence.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <numeric>
#include <utility>

#include "engine/ranks/saved_shards.h"

namespace winnow::engine {
namespace {

// Entries as one rank would hold them; bytes as all ranks hold them.
CacheUsage join_usages(const Group& group, std::span<RankAnswer> answers) {
  CacheUsage whole;
  std::vector<std::vector<std::int32_t>> per_head;
  for (RankAnswer& message : answers) {
    whole.tokens = message.take<int>();
    whole.bytes += message.take<std::size_t>();
    whole.state_bytes += message.take<std::size_t>();
    whole.dense_bytes += message.take<std::size_t>();
    per_head.push_back(message.take_all<std::int32_t>());
  }
  const std::vector<std::span<const std::int32_t>> parts(per_head.begin(), per_head.end());
  whole.per_head.resize(static_cast<std::size_t>(group.shape().all_heads()));
  join_heads(group, parts, whole.per_head);
  whole.live_entries =
      std::accumulate(whole.per_head.begin(), whole.per_head.end(), std::int64_t{0});
  whole.dense_entries = group.shape().dense_entries(whole.tokens);
  return whole;
}

}  // namespace

kvcache::PageNeed join_needs(std::vector<kvcache::PageNeed> needs) {
  kvcache::PageNeed joined = std::move(needs.front());
  joined.others.assign(needs.begin() + 1, needs.end());
  return joined;
}

void join_heads(const Group& group, std::span<const std::span<const std::int32_t>> parts,
                std::span<std::int32_t> whole) {
  auto to = whole.begin();
  for (int layer = 0; layer < group.shape().layers; ++layer) {
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      const kvcache::CacheShape& own = group.shapes()[rank];
      if (!counts_heads(group.shape(), layer,
                        {static_cast<int>(rank), static_cast<int>(parts.size())})) {
        continue;
      }
      const auto heads = static_cast<std::size_t>(own.kv_heads_of(layer));
      const auto first = static_cast<std::size_t>(own.heads_before(layer));
      to = std::ranges::copy(parts[rank].subspan(first, heads), to).out;
    }
  }
}

kvcache::SavedSequence join_saved(const Group& group, const RunnerSettings& runner,
                                  const kvcache::SequenceLimits& limits,
                                  std::span<RankAnswer> answers) {
  std::vector<kvcache::SavedSequence> parts;
  for (RankAnswer& answer : answers) {
    parts.push_back(take_saved(answer.reader()));
  }
  const SavedForm form{group.whole(),
                       group.shape(),
                       group.shape().page_layout(runner.cache.format),
                       {runner.cache, limits}};
  return join_saved(form, parts);
}

RankedSequence::~RankedSequence() {
  try {
    group_.ask(RankCommand::close, names());
  } catch (const std::exception&) {  // a rank has failed: nothing is left to close
  }
}

CacheUsage RankedSequence::usage() const {
  auto answers = group_.ask(RankCommand::usage, names());
  return join_usages(group_, answers);
}

kvcache::SavedSequence RankedSequence::save() const {
  auto answers = group_.ask(RankCommand::save, names());
  return join_saved(group_, runner_, limits_, answers);
}

kvcache::PageNeed RankedSequence::need(int tokens) const {
  if (tokens == 1 && next_need_) {
    return *next_need_;
  }
  auto answers = group_.ask(RankCommand::need, [&](MessageWriter& message) {
    message.put(id_);
    message.put(tokens);
  });
  std::vector<kvcache::PageNeed> needs;
  needs.reserve(answers.size());
  for (RankAnswer& answer : answers) {
    needs.push_back(take_need(answer.reader()));
  }
  return join_needs(std::move(needs));
}
std::unique_ptr<SequenceState> RankedSequence::fork() const {
  next_need_.reset();  // pages that are shared now are copied when they are written
  auto copy = std::make_unique<RankedSequence>(group_, runner_, group_.new_id(), limits_, length_);
  const bool room = group_.ask_for<bool>(
      RankCommand::fork,
      [&](MessageWriter& message) {
        message.put(id_);
        message.put(copy->id());
      },
      std::logical_and<>());
  return room ? std::move(copy) : nullptr;  // if not, destroying `copy` closes it on all ranks
}

}  // namespace winnow::engine
