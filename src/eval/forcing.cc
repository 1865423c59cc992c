#include "eval/forcing.h"

#include <algorithm>

#include "base/error.h"

namespace winnow::eval {
namespace {

constexpr const char* kFull =
    "the cache is full: allow it more memory with --kv-gib, or fewer sequences at once with "
    "--batch";
constexpr std::size_t kMostLogits = std::size_t{1} << 24;  // floats per step

engine::EngineConfig with_sequences(engine::EngineConfig config, int sequences) {
  config.max_sequences = sequences;
  return config;
}

}  // namespace

int most_tokens(const kvcache::CacheConfig& cache, int sequences, int length) {
  constexpr std::int64_t kPartPages = 4 * ops::kPageEntries;
  const std::int64_t each = length + std::min(length, cache.window) + kPartPages;
  return static_cast<int>(std::min<std::int64_t>(sequences * each, 1 << 30));
}

Forcing::Forcing(const engine::LoadedModel& model, int sequences, int length)
    : model_(model),
      vocab_(static_cast<std::size_t>(model.spec().vocab)),
      runner_(model.backend->make_runner(with_sequences(model.engine, sequences),
                                         most_tokens(model.engine.cache, sequences, length))) {}

std::size_t Forcing::open(std::vector<std::int32_t> tokens, const kvcache::SequenceLimits& limits,
                          std::size_t first_row) {
  lanes_.push_back({runner_->open(limits), std::move(tokens), first_row});
  return lanes_.size() - 1;
}

std::size_t Forcing::fork(std::size_t sequence, std::span<const std::int32_t> tokens,
                          std::size_t first_row) {
  Lane lane{lanes_[sequence].state->fork(), lanes_[sequence].tokens, first_row};
  require(lane.state != nullptr, kFull);
  lane.tokens.insert(lane.tokens.end(), tokens.begin(), tokens.end());
  lanes_.push_back(std::move(lane));
  return lanes_.size() - 1;
}

void Forcing::append(std::size_t sequence, std::int32_t token) {
  lanes_[sequence].tokens.push_back(token);
}

void Forcing::close(std::size_t sequence) {
  lanes_[sequence] = {};
}

// How many of a lane's next `tokens` tokens need logits: always the last ones.
std::size_t Forcing::rows_of(const Lane& lane, std::size_t tokens) {
  const std::size_t end = lane.fed() + tokens;
  return end - std::min(end, std::max(lane.first_row, lane.fed()));
}

std::vector<ForcedShare> Forcing::plan() const {
  const auto active = static_cast<std::size_t>(
      std::ranges::count_if(lanes_, [](const Lane& lane) { return lane.pending() > 0; }));
  const std::size_t budget = static_cast<std::size_t>(model_.engine.step_tokens);
  const std::size_t each = std::max<std::size_t>(1, budget / std::max<std::size_t>(1, active));
  const std::size_t most_rows = std::max<std::size_t>(1, kMostLogits / vocab_);
  std::vector<ForcedShare> shares;
  kvcache::PageNeed planned;
  std::size_t tokens = 0;
  std::size_t rows = 0;
  for (std::size_t i = 0; i < lanes_.size() && tokens < budget && rows < most_rows; ++i) {
    const Lane& lane = lanes_[i];
    if (lane.pending() == 0) {
      continue;
    }
    std::size_t count = std::min(lane.pending(), each);
    const std::size_t excess =
        std::max(rows + rows_of(lane, count), most_rows) - most_rows;  // for the last tokens
    count -= std::min(count, excess);
    kvcache::PageNeed need = runner_->need(*lane.state, static_cast<int>(count));
    need += planned;
    if (count == 0 || !runner_->has_room(need)) {
      continue;
    }
    planned = need;
    shares.push_back({i, count});
    tokens += count;
    rows += rows_of(lane, count);
  }
  require(!shares.empty() || active == 0, kFull);
  return shares;
}

std::vector<ForcedRow> Forcing::step(std::span<const ForcedShare> shares) {
  std::vector<engine::SequenceShare> steps;
  kvcache::PageNeed need;
  std::vector<ForcedRow> rows;
  for (const ForcedShare& share : shares) {
    const Lane& lane = lanes_[share.sequence];
    const std::size_t count = rows_of(lane, share.tokens);
    need += runner_->need(*lane.state, static_cast<int>(share.tokens));
    steps.push_back(
        {lane.state.get(), std::span(lane.tokens).subspan(lane.fed(), share.tokens), count, {}});
    for (std::size_t t = share.tokens - count; t < share.tokens; ++t) {
      rows.push_back({share.sequence, lane.fed() + t, {}});
    }
  }
  require(runner_->has_room(need), kFull);
  logits_.ensure(rows.size() * vocab_);
  runner_->forward(steps, {logits_.data(), rows.size(), vocab_}, {});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].logits = std::span<const float>(logits_.data() + i * vocab_, vocab_);
  }
  return rows;
}

}  // namespace winnow::eval
