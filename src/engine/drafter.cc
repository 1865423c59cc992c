#include "engine/drafter.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "engine/engine.h"
#include "engine/head_drafter.h"
#include "engine/model_drafter.h"

namespace winnow::engine {
namespace {

constexpr std::size_t kLeastMatch = 2;  // tokens; a single matching token predicts little
constexpr std::size_t kMostMatch = 8;   // enough to stop searching further back
constexpr int kLongestPause = 64;       // steps; a wrong draft costs less than one step

// Of models: how likely it must be that all of a draft is right, the rate below which wrong drafts
// are followed by pauses, and the weight of a token beside the one before it. Chosen by simulation
// (docs/lab/speculation.md).
constexpr double kLeastLikely = 0.4;
constexpr double kLeastRate = 0.2;
constexpr double kMemory = 0.96;

// How many tokens before `end` match those at the end of `tokens`, up to kMostMatch.
std::size_t match_before(std::span<const std::int32_t> tokens, std::size_t end) {
  std::size_t length = 0;
  while (length < std::min(end, kMostMatch) &&
         tokens[end - 1 - length] == tokens[tokens.size() - 1 - length]) {
    ++length;
  }
  return length;
}

}  // namespace

std::unique_ptr<Drafter> make_drafter(const EngineConfig& config) {
  if (config.draft_model == nullptr) {
    return std::make_unique<PromptLookup>();
  }
  if (config.draft_model->spec().draft_head) {
    return std::make_unique<HeadDrafter>(*config.draft_model, config);
  }
  return std::make_unique<ModelDrafter>(*config.draft_model, config);
}

EngineConfig draft_runner_config(const EngineConfig& config) {
  EngineConfig own = config;
  own.cache = config.draft_cache;
  own.cache_part = config.draft_cache_part;
  own.max_sequences = std::min(config.max_sequences, kMostDrafted + 1);
  own.host_bytes = 0;
  own.other_bytes = 0;
  own.draft_model = nullptr;
  return own;
}

void PromptLookup::draft(std::span<DraftTask> tasks, int rows) {
  for (DraftTask& task : tasks) {
    task.draft = guess(task.tokens, std::min(task.most, rows));
    rows -= static_cast<int>(task.draft.size());
  }
}

std::vector<std::int32_t> PromptLookup::guess(std::span<const std::int32_t> tokens, int most) {
  std::size_t longest = kLeastMatch - 1;
  std::size_t next = 0;  // where the longest match continues
  const std::size_t last = std::max<std::size_t>(tokens.size(), 1) - 1;
  for (std::size_t end = last; end >= kLeastMatch && longest < kMostMatch; --end) {
    const std::size_t length = match_before(tokens, end);
    if (length > longest) {
      longest = length;
      next = end;
    }
  }
  std::vector<std::int32_t> draft;
  for (std::size_t i = next; next > 0 && static_cast<int>(draft.size()) < most; ++i) {
    // A match that runs into the end of `tokens` repeats itself: the draft continues from itself.
    draft.push_back(i < tokens.size() ? tokens[i] : draft[i - tokens.size()]);
  }
  return draft;
}

std::unique_ptr<DraftLength> PromptLookup::make_length() const {
  return std::make_unique<LookupLength>();
}

bool DraftPause::wait() {
  if (left_ == 0) {
    return false;
  }
  --left_;
  return true;
}

void DraftPause::lengthen() {
  left_ = steps_ = std::clamp(4 * steps_, 1, kLongestPause);
}

int LookupLength::next(int most) {
  return pause_.wait() ? 0 : std::min(length_, most);
}

void LookupLength::observe(int drafted, int accepted) {
  if (accepted > 0) {
    length_ =
        accepted == drafted ? std::max(length_, std::min(2 * drafted, kMostDrafted)) : accepted + 1;
    pause_.end();
  } else {
    length_ = std::max(1, drafted / 2);
    pause_.lengthen();
  }
}

int ModelLength::next(int most) {
  if (pause_.wait()) {
    return 0;
  }
  const double rate = right_ / tried_;
  int length = 1;
  for (double all = rate * rate; length < most && all >= kLeastLikely; all *= rate) {
    ++length;
  }
  return length;
}

void ModelLength::observe(int drafted, int accepted) {
  const int tried = accepted + (accepted < drafted ? 1 : 0);
  const double weight = std::pow(kMemory, tried);
  right_ = right_ * weight + accepted;
  tried_ = tried_ * weight + tried;
  if (accepted > 0 || right_ / tried_ >= kLeastRate) {
    pause_.end();
  } else {
    pause_.lengthen();
  }
}

}  // namespace winnow::engine
