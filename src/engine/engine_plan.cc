// Chooses the sequences of the next step and their numbers of tokens.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <ranges>
#include <utility>

#include "engine/engine.h"
#include "engine/prefix_store.h"
#include "engine/sequence.h"
#include "engine/token_budget.h"

namespace winnow::engine {
namespace {

constexpr std::chrono::milliseconds kNap{2};  // between checks for new or cancelled requests
constexpr std::size_t kMostScores = 1 << 24;  // logits of prompt tokens held at a time

}  // namespace

std::vector<Engine::Share> Engine::plan(std::vector<TokenEvent>& events) {
  std::vector<Share> shares = deal_step();
  // One sequence got all tokens but has no room for them: make some for the others.
  while (shares.empty() && running_.size() > 1) {
    preempt(victim(), shares);
    shares = deal_step();
  }
  remove_finished(events);
  return shares;
}

// Deals out the step's tokens: first one to every decoding sequence, with its draft; then the rest
// to prompts.
std::vector<Engine::Share> Engine::deal_step() {
  std::vector<Share> shares;
  draft();
  kvcache::PageNeed need;
  for (const SequencePtr& sequence : running_) {
    if (sequence->is_decoding()) {
      const int drafted = static_cast<int>(sequence->draft.size());
      const int tokens = sequence->pending() + drafted;
      shares.push_back(
          {sequence.get(), tokens, 1 + drafted, runner_->need(*sequence->cache, tokens)});
      need += shares.back().need;
    }
  }
  // Nearly always there is room for all of them, so ask once; if not, ask for each.
  if (!runner_->has_room(need)) {
    const std::vector<Share> asked = std::exchange(shares, {});
    drop_drafts();
    for (const Share& share : asked) {
      if (share.sequence->cache) {  // it was not preempted meanwhile
        claim(*share.sequence, share.sequence->pending(), shares);
      }
    }
  }
  const int decodes = static_cast<int>(shares.size());
  admit(shares);
  std::vector<Sequence*> prompts;
  std::vector<int> pending;
  for (Sequence* const sequence : without_share(shares)) {
    if (sequence->finish == FinishReason::none) {
      prompts.push_back(sequence);
      pending.push_back(most_tokens(*sequence));
    }
  }
  const auto dealt = deal_tokens(pending, prompt_budget(config_.step_tokens, decodes));
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    // Only sequences that hold cache run; a sequence preempted meanwhile is skipped.
    if (dealt[i] > 0 && prompts[i]->cache) {
      claim(*prompts[i], dealt[i], shares);
    }
  }
  return shares;
}

// The running sequences that have no share of the step. Shares are in the order of `running_`.
std::vector<Engine::Sequence*> Engine::without_share(std::span<const Share> shares) const {
  std::vector<Sequence*> others;
  auto share = shares.begin();
  for (const SequencePtr& sequence : running_) {
    if (share != shares.end() && share->sequence == sequence.get()) {
      ++share;
    } else {
      others.push_back(sequence.get());
    }
  }
  return others;
}

// Adds `sequence` to the step with as many of `wanted` tokens as fit. Drops prefixes and preempts
// younger sequences to make room. If the sequence runs alone and has no room, it ends.
bool Engine::claim(Sequence& sequence, int wanted, std::vector<Share>& shares) {
  int tokens = admissible_tokens(sequence, wanted, shares);
  while (tokens == 0 && make_room(sequence, shares)) {
    tokens = admissible_tokens(sequence, wanted, shares);
  }
  if (tokens == 0) {
    if (running_.size() == 1) {
      finish(sequence, FinishReason::out_of_memory);
    }
    return false;
  }
  const bool complete = tokens == sequence.pending();
  shares.push_back({&sequence, tokens,
                    sequence.is_scored() ? tokens
                    : complete           ? 1
                                         : 0,
                    runner_->need(*sequence.cache, tokens)});
  return true;
}

// The number of `wanted` tokens that are sure to fit into the free pages after `shares`.
int Engine::admissible_tokens(const Sequence& sequence, int wanted,
                              const std::vector<Share>& shares) const {
  kvcache::PageNeed planned;
  for (const Share& share : shares) {
    planned += share.need;
  }
  for (int tokens = wanted; tokens > 0; tokens /= 2) {
    kvcache::PageNeed need = runner_->need(*sequence.cache, tokens);
    need += planned;
    if (runner_->has_room(need)) {
      return tokens;
    }
  }
  return 0;
}

// Frees pages for `sequence`: those of a prefix, else of drafts, else of a sequence that is to
// yield to it. False if there are none of these.
bool Engine::make_room(const Sequence& sequence, std::vector<Share>& shares) {
  if (drop_prefix() || drop_drafts(shares)) {
    return true;
  }
  const auto yields = victim();
  if (yields->get() == &sequence) {
    return false;
  }
  preempt(yields, shares);
  return true;
}

// The running sequence that yields to all others: of the last priority, the youngest.
std::vector<Engine::SequencePtr>::iterator Engine::victim() {
  const auto priority = [](const SequencePtr& sequence) { return sequence->spec->priority; };
  return std::prev(std::ranges::max_element(std::views::reverse(running_), {}, priority).base());
}

// Frees the pages of a running sequence, which waits before those of the same priority. What it
// held is set aside in the host's memory, or computed again.
void Engine::preempt(std::vector<SequencePtr>::iterator place, std::vector<Share>& shares) {
  SequencePtr sequence = std::move(*place);
  running_.erase(place);
  std::erase_if(shares, [&](const Share& share) { return share.sequence == sequence.get(); });
  set_aside(*sequence);
  sequence->cache.reset();
  sequence->shared.reset();
  sequence->forget_draft();
  sequence->uncommitted = 0;
  const auto next = std::ranges::find_if(waiting_, [&](const SequencePtr& other) {
    return other->spec->priority >= sequence->spec->priority;
  });
  waiting_.insert(next, std::move(sequence));
  ++stats_.preemptions;
  crowded_ = true;
}

// Admits new sequences, first come first served, as long as there is room.
void Engine::admit(std::vector<Share>& shares) {
  crowded_ = crowded_ && !running_.empty();
  PromptPlaces places(prompt_budget(config_.step_tokens, static_cast<int>(shares.size())));
  std::vector<Sequence*> readers = without_share(shares);  // they read their prompts
  for (const Sequence* reader : readers) {
    places.take(reader->pending());
  }
  const auto may_admit = [&] {
    return !crowded_ && !waiting_.empty() &&
           running_.size() < static_cast<std::size_t>(config_.max_sequences);
  };
  if (may_admit()) {
    observe_one();
  }
  while (may_admit()) {
    // Sequences whose states have not arrived let others pass, and long prompts let short ones.
    const auto next = std::ranges::find_if(waiting_, [&](const SequencePtr& sequence) {
      return sequence->has_arrived() && !follows_another(*sequence, readers) &&
             places.has_one_for(sequence->length() - sequence->shared_length());
    });
    if (next == waiting_.end()) {
      break;
    }
    Sequence& sequence = **next;
    sequence.shared = known_part(sequence);
    if (!is_expected_to_fit(sequence)) {
      break;
    }
    if (!open_cache(sequence)) {
      crowded_ = true;
      break;
    }
    while (!running_.empty() && admissible_tokens(sequence, 1, shares) == 0) {
      if (!drop_prefix() && !drop_drafts(shares)) {
        crowded_ = crowded_ || host_ != nullptr;  // do not restore it again in every step
        sequence.cache.reset();
        return;
      }
    }
    count_admitted(sequence);
    save_prompt(sequence);
    running_.push_back(std::move(*next));
    waiting_.erase(next);
    places.take(sequence.pending());
    readers.push_back(&sequence);
  }
  wait_for_states();
}

// Whether one of `readers` reads tokens with which this sequence begins, too. Then this one waits,
// and begins with the state that the other one stores where they part.
bool Engine::follows_another(Sequence& sequence, std::span<Sequence* const> readers) {
  if (sequence.leader != 0) {
    const auto leader = std::ranges::find_if(readers, [&](const Sequence* reader) {
      return reader->request == sequence.leader && reader->cached() < sequence.follows_to;
    });
    if (leader != readers.end()) {
      (*leader)->branch_at(sequence.follows_to);
      return true;
    }
    sequence.leader = 0;
    sequence.shared = known_part(sequence);
  }
  if (sequence.set_aside || !may_begin_with_a_prefix(sequence)) {
    return false;
  }
  for (Sequence* const reader : readers) {
    const int common = common_unread(sequence, *reader);
    if (common >= sequence.shared_length() + kLeastPrefix) {
      sequence.leader = reader->request;
      sequence.follows_to = common;
      reader->branch_at(common);
      return true;
    }
  }
  return false;
}

// Tokens that both sequences begin with, if `reader` leaves prefixes and has not read them all;
// else 0. The last token of `sequence` does not count: it is always computed.
int Engine::common_unread(const Sequence& sequence, const Sequence& reader) {
  const auto read = static_cast<std::size_t>(reader.cached());
  const auto tokens = std::span(sequence.tokens).first(sequence.tokens.size() - 1);
  const bool differ = read >= std::min(tokens.size(), reader.tokens.size()) ||
                      tokens[read] != reader.tokens[read];  // nearly always decides
  if (differ || reader.is_decoding() || reader.finish != FinishReason::none ||
      reader.is_watched() || reader.spec->adapter != sequence.spec->adapter) {
    return 0;
  }
  const auto common = std::ranges::mismatch(tokens, reader.tokens).in1 - tokens.begin();
  return common > reader.cached() ? static_cast<int>(common) : 0;
}

// Waits if there is nothing else to do. Only for a moment, as requests may come or be cancelled.
void Engine::wait_for_states() const {
  if (running_.empty() && !waiting_.empty()) {
    for (const ComingState& coming : waiting_.front()->coming) {
      coming.state.wait_for(kNap);
    }
  }
}

// The most tokens that the sequence may take in one step.
int Engine::most_tokens(const Sequence& sequence) const {
  int most = sequence.pending();
  if (sequence.cached() < sequence.branch) {
    most = std::min(most, sequence.branch - sequence.cached());  // to store a state there
  }
  if (sequence.cached() < sequence.saved_length()) {
    most = std::min(most, sequence.saved_length() - sequence.cached());
  }
  if (sequence.is_scored()) {
    const auto rows =
        std::max<std::size_t>(1, kMostScores / static_cast<std::size_t>(model_.vocab));
    most = std::min(most, static_cast<int>(std::min<std::size_t>(rows, kMostScores)));
  }
  return most;
}

// No if scores or traces are wanted: they need every token to be computed.
bool Engine::may_begin_with_a_prefix(const Sequence& sequence) const {
  return config_.reuse_prefixes && !sequence.spec->beginning && !sequence.is_scored() &&
         !sequence.is_watched();
}

// Asks for states of the sequence's prefixes that are longer than those in memory.
void Engine::ask_sources(Sequence& sequence) {
  if (sequence.spec->adapter || !may_begin_with_a_prefix(sequence)) {
    return;
  }
  const std::span<const std::int32_t> prompt(sequence.tokens);
  const auto tokens = prompt.first(prompt.size() - 1);
  auto known = static_cast<std::size_t>(
      std::max(prefixes_.find(tokens).length, host_ ? host_->find(tokens, nullptr).length : 0));
  for (StateSource* source : {static_cast<StateSource*>(store_), remote_}) {
    if (source == nullptr) {
      continue;
    }
    ComingState coming = source->find(prompt, known + kLeastPrefix);
    if (coming.length > 0) {
      known = coming.length;
      sequence.coming.push_back(std::move(coming));
    }
  }
}

// Opens a cache for the sequence: with what was set aside when it was preempted, or with a known
// prefix of its tokens if there is one, else empty. False if it should wait for room.
bool Engine::open_cache(Sequence& sequence) {
  restore_set_aside(sequence);
  if (sequence.cache || sequence.set_aside) {
    return sequence.cache != nullptr;
  }
  sequence.reused = 0;
  sequence.branch = 0;
  sequence.left = 0;
  sequence.shared = nullptr;
  if (may_begin_with_a_prefix(sequence)) {
    open_known(sequence);
  } else if (sequence.spec->beginning && !sequence.is_scored() && !sequence.is_watched()) {
    sequence.cache = runner_->restore(sequence.limits(), *sequence.spec->beginning);
    sequence.reused = sequence.cached();
  }
  if (!sequence.cache) {
    sequence.cache = runner_->open(sequence.limits());
  }
  return true;
}

void Engine::count_admitted(Sequence& sequence) {
  if (std::exchange(sequence.set_aside, nullptr)) {
    return;  // it goes on where it was preempted
  }
  if (!std::exchange(sequence.admitted, true) && sequence.sample == 0 &&
      sequence.spec->on_admitted) {
    sequence.spec->on_admitted();
  }
  stats_.prompt_tokens += sequence.length();
  stats_.reused_tokens += sequence.reused;
  if (may_begin_with_a_prefix(sequence)) {
    (sequence.reused > 0 ? stats_.prefix_hits : stats_.prefix_misses) += 1;
  }
}

// Opens the sequence's cache from the longest prefix in memory, if there is one.
void Engine::open_known(Sequence& sequence) {
  // The last token is always computed: its logits are needed.
  const int most = sequence.length() - 1;
  const auto tokens = std::span(sequence.tokens).first(static_cast<std::size_t>(most));
  const auto& adapter = sequence.spec->adapter;
  open_coming(sequence, prefixes_.find(tokens, adapter).length);
  const int common = open_hosted(sequence, prefixes_.find(tokens, adapter).length);
  const PrefixCache::Match match = prefixes_.find(tokens, adapter);
  if (!sequence.cache && match.state != nullptr) {
    sequence.cache = match.state->fork();
    sequence.shared = match.state->shared;
  }
  sequence.reused = sequence.cached();
  sequence.left = sequence.reused;
  // A client that saves the prompt's cache may send the prompt again.
  const int branch = std::max({match.common, common, sequence.saved_length()});
  if (branch >= sequence.reused + kLeastPrefix) {
    sequence.branch = branch;
  }
}

// Continues from the longest state that has arrived, if it is longer than `known` and there is room
// for it. Keeps it in memory for other sequences.
void Engine::open_coming(Sequence& sequence, int known) {
  std::vector<ComingState> all = std::exchange(sequence.coming, {});
  for (auto coming = all.rbegin(); coming != all.rend() && !sequence.cache; ++coming) {
    const std::shared_ptr<const SavedState> state = coming->state.get();
    if (!state || state->cache.length <= known) {
      continue;
    }
    do {
      sequence.cache = runner_->restore({}, state->cache);
    } while (!sequence.cache && drop_prefix());
    if (sequence.cache) {
      keep_prefix(
          sequence, sequence.cache->fork(),
          coming->on_disk ? PrefixCache::Purpose::stored : PrefixCache::Purpose::continuation);
    }
  }
}

}  // namespace winnow::engine
