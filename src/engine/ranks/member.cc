#include "engine/ranks/member.h"

#include <algorithm>
#include <array>
#include <exception>
#include <string_view>

#include "base/error.h"
#include "base/error_text.h"
#include "engine/cache_memory.h"

namespace winnow::engine {
namespace {

// A message and its size travel together if it is short.
constexpr std::size_t kFirst = 1024;

void put(MessageWriter& answer, const CacheUsage& usage) {
  answer.put(usage.tokens);
  answer.put(usage.bytes);
  answer.put(usage.state_bytes);
  answer.put(usage.dense_bytes);
  answer.put_all(std::span(usage.per_head));
}

}  // namespace

Member::Member(const Backend& local, const model::ModelSpec& whole, const model::Shard& shard)
    : local_(local),
      whole_(whole),
      whole_shape_(model::cache_shape(whole, shard.ranks)),
      shard_(shard) {
  const kvcache::CacheShape own = local.cache_shape();
  for (int layer = 0; layer < own.layers; ++layer) {
    counts_.insert(counts_.end(), static_cast<std::size_t>(own.kv_heads_of(layer)),
                   counts_heads(whole_shape_, layer, shard));
  }
}

MessageWriter Member::obey(std::span<const std::byte> bytes, const StepResults* results) {
  const auto command = MessageReader(bytes).take<RankCommand>();
  // If a rank fails while others wait for it in the middle of a command, all of them fail.
  const bool meets_others = command == RankCommand::forward ||
                            (command == RankCommand::make_runner && local_.memory_in_use());
  MessageReader message(bytes);
  MessageWriter answer;
  answer.put(true);
  try {
    do_command(message, answer, results);
  } catch (const std::exception& error) {
    if (meets_others) {
      throw;
    }
    answer = {};
    answer.put(false);
    const std::string text = error_text(error);
    answer.put_all(std::span(text));
  }
  return answer;
}

void Member::do_command(MessageReader& message, MessageWriter& answer, const StepResults* results) {
  switch (message.take<RankCommand>()) {
    case RankCommand::end:
      copies_.clear();
      sequences_.clear();
      runners_.clear();
      ended_ = true;
      break;
    case RankCommand::make_runner:
      make_runner(message, answer);
      break;
    case RankCommand::drop_runner:
      runners_.erase(message.take<int>());
      break;
    case RankCommand::open: {
      const int id = message.take<int>();
      const int sequence = message.take<int>();
      const auto limits = message.take<kvcache::SequenceLimits>();
      sequences_[sequence] = {id, limits, runner(id).open(limits)};
      break;
    }
    case RankCommand::restore:
      restore(message, answer);
      break;
    case RankCommand::fork:
      fork(message, answer);
      break;
    case RankCommand::close:
      sequences_.erase(message.take<int>());
      break;
    case RankCommand::need: {
      const Held& held = sequences_.at(message.take<int>());
      put(answer, runner(held.runner).need(*held.state, message.take<int>()));
      break;
    }
    case RankCommand::has_room: {
      const Runner& own = runner(message.take<int>());
      kvcache::PageNeed need = take_need(message);
      for (int rank = 0; rank < shard_.rank; ++rank) {
        need = take_need(message);
      }
      answer.put(own.has_room(need));
      break;
    }
    case RankCommand::forward:
      forward(message, answer, results);
      break;
    case RankCommand::usage:
      put(answer, sequences_.at(message.take<int>()).state->usage());
      break;
    case RankCommand::save:
      put(answer, sequences_.at(message.take<int>()).state->save());
      break;
    case RankCommand::bytes: {
      const Runner& own = runner(message.take<int>());
      answer.put(own.page_bytes());
      answer.put(own.state_bytes());
      break;
    }
    case RankCommand::weight_bytes:
      answer.put(local_.weight_bytes_per_step(message.take<int>()));
      break;
    case RankCommand::make_copies:
      make_copies(message);
      break;
    case RankCommand::copy:
      copy(message, answer);
      break;
    case RankCommand::restore_copy:
      restore_copy(message, answer);
      break;
    case RankCommand::save_copy:
      save_copy(message, answer);
      break;
    case RankCommand::drop_copy:
      copies_.erase(message.take<int>());
      break;
  }
}

// Memory is configured for all ranks together: each gets the share of the heads that it holds.
std::size_t Member::share_of(std::size_t bytes) const {
  const auto own = static_cast<double>(local_.cache_shape().all_heads());
  return static_cast<std::size_t>(static_cast<double>(bytes) * own / whole_shape_.held_heads());
}

std::int64_t Member::live_entries(const SequenceState& sequence) const {
  if (std::ranges::find(counts_, false) == counts_.end()) {
    return sequence.live_entries();
  }
  if (std::ranges::find(counts_, true) == counts_.end()) {
    return 0;
  }
  const CacheUsage usage = sequence.usage();
  std::int64_t entries = 0;
  for (std::size_t head = 0; head < counts_.size(); ++head) {
    entries += counts_[head] ? usage.per_head[head] : 0;
  }
  return entries;
}

void Member::make_runner(MessageReader& message, MessageWriter& answer) {
  const int id = message.take<int>();
  auto config = message.take<EngineConfig>();
  if (config.cache.max_bytes != kAllThereIs) {
    config.cache.max_bytes = share_of(config.cache.max_bytes);
  }
  config.host_bytes = share_of(config.host_bytes);
  runners_[id] = {local_.make_runner(config, message.take<int>()), config.cache, nullptr};
  answer.put(runner(id).capacity_bytes());
  answer.put(runner(id).forks_share_pages());
}

void Member::restore(MessageReader& message, MessageWriter& answer) {
  const int id = message.take<int>();
  const int sequence = message.take<int>();
  const auto limits = message.take<kvcache::SequenceLimits>();
  const kvcache::CacheConfig& cache = runners_.at(id).cache;
  const SavedForm form{
      whole_, whole_shape_, whole_shape_.page_layout(cache.format), {cache, limits}};
  auto state = runner(id).restore(limits, shard_saved(form, take_saved(message), shard_));
  answer.put(state != nullptr);
  sequences_[sequence] = {id, limits, std::move(state)};
}

void Member::fork(MessageReader& message, MessageWriter& answer) {
  const Held& held = sequences_.at(message.take<int>());
  auto state = held.state->fork();
  answer.put(state != nullptr);
  sequences_[message.take<int>()] = {held.runner, held.limits, std::move(state)};
}

void Member::forward(MessageReader& message, MessageWriter& answer, const StepResults* results) {
  const int id = message.take<int>();
  std::vector<SequenceShare> shares(message.take<std::size_t>());
  std::vector<std::vector<std::int32_t>> tokens(shares.size());
  std::vector<std::vector<std::int32_t>> visible(shares.size());
  std::vector<std::vector<float>> states(shares.size());  // only rank 0 reports them
  const auto heads = static_cast<std::size_t>(local_.cache_shape().all_heads());
  std::size_t rows = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    SequenceShare& share = shares[i];
    if (results != nullptr) {  // rank 0: the share includes what only rank 0 does
      share = results->shares[i];
    }
    share.sequence = sequences_.at(message.take<int>()).state.get();
    tokens[i] = message.take_all<std::int32_t>();
    share.tokens = tokens[i];
    share.logit_rows = message.take<std::size_t>();
    rows += share.logit_rows;
    share.visible = {};
    if (message.take<bool>()) {
      visible[i].resize(tokens[i].size() * heads);
      share.visible = {visible[i].data(), tokens[i].size(), heads};
    }
    states[i].resize(message.take<std::size_t>());
    share.state = results != nullptr ? share.state : states[i];
  }
  if (results != nullptr) {
    runner(id).forward(shares, results->logits, results->next);
  } else {
    runner(id).forward(shares, {nullptr, rows, static_cast<std::size_t>(whole_.vocab)}, {});
  }
  answer.put(runner(id).page_bytes());
  answer.put(runner(id).state_bytes());
  for (std::size_t i = 0; i < shares.size(); ++i) {
    answer.put(live_entries(*shares[i].sequence));
    put(answer, runner(id).need(*shares[i].sequence, 1));
    answer.put_all(std::span<const std::int32_t>(visible[i]));
  }
}

void put(MessageWriter& message, const kvcache::PageNeed& need) {
  message.put(need.archive);
  message.put(need.window);
  message.put(need.states);
}

kvcache::PageNeed take_need(MessageReader& message) {
  kvcache::PageNeed need;
  need.archive = message.take<std::size_t>();
  need.window = message.take<std::size_t>();
  need.states = message.take<std::size_t>();
  return need;
}

void send_to_all(parallel::Communicator& ranks, std::span<const std::byte> message) {
  std::array<std::byte, kFirst> first{};
  const std::size_t size = message.size();
  std::memcpy(first.data(), &size, sizeof(size));
  const std::size_t at_once = std::min(size, kFirst - sizeof(size));
  std::ranges::copy(message.first(at_once), first.begin() + sizeof(size));
  ranks.broadcast(first);
  if (at_once < size) {
    std::vector<std::byte> rest(message.begin() + static_cast<std::ptrdiff_t>(at_once),
                                message.end());
    ranks.broadcast(rest);
  }
}

std::vector<std::byte> receive_from_first(parallel::Communicator& ranks) {
  std::array<std::byte, kFirst> first{};
  ranks.broadcast(first);
  std::size_t size = 0;
  std::memcpy(&size, first.data(), sizeof(size));
  std::vector<std::byte> message(size);
  const std::size_t at_once = std::min(size, kFirst - sizeof(size));
  std::copy_n(first.begin() + sizeof(size), at_once, message.begin());
  if (at_once < size) {
    ranks.broadcast(std::span(message).subspan(at_once));
  }
  return message;
}

void obey_first(Member& member, parallel::Communicator& ranks) {
  try {
    while (!member.has_ended()) {
      const auto message = receive_from_first(ranks);
      ranks.gather(member.obey(message).bytes());
    }
  } catch (const std::exception& error) {
    const std::string why = fmt::format("rank {}: {}", ranks.rank(), error_text(error));
    ranks.fail(why);
    throw Error(why);
  }
}

}  // namespace winnow::engine
