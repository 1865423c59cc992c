// Speculation. A step takes a sequence's last token and the drafted ones after it, while a copy of
// the cache keeps the state from before. If a draft is wrong, the copy replaces the cache, which
// removes the draft under any rule, and the next step takes the accepted tokens once more.
#include <algorithm>
#include <utility>

#include "engine/drafter.h"
#include "engine/engine.h"
#include "engine/sequence.h"

namespace winnow::engine {
namespace {

// The limit of a step with drafts: beyond it, a row costs about as much as a step of its own.
constexpr int kMostRows = kMostDrafted + 1;

}  // namespace

// The rows that a step of all decoding sequences leaves for drafts.
int Engine::rows_for_drafts() const {
  int rows = kMostRows;
  for (const SequencePtr& sequence : running_) {
    rows -= sequence->is_decoding() ? sequence->pending() : 0;
  }
  return rows;
}

// Drafts tokens for decoding sequences, as long as the step has rows for them.
void Engine::draft() {
  const int rows = rows_for_drafts();
  if (rows <= 0) {
    return;
  }
  std::vector<DraftTask> tasks;
  std::vector<Sequence*> sequences;
  for (const SequencePtr& sequence : running_) {
    const int wanted = may_draft(*sequence) ? tokens_to_draft(*sequence, rows) : 0;
    if (wanted > 0) {
      sequence->advance_constraint();
      tasks.push_back({.tokens = sequence->tokens,
                       .most = wanted,
                       .state = &sequence->draft_state,
                       .constraint = sequence->constraint.get(),
                       .stop_tokens = sequence->spec->stop_tokens});
      sequences.push_back(sequence.get());
    }
  }
  if (tasks.empty()) {
    return;
  }
  stats_.plan_seconds += step_clock_.lap();
  drafter_->draft(tasks, rows);
  const double elapsed = step_clock_.lap();
  stats_.draft_seconds += elapsed;
  throughput_.decode_seconds += elapsed;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    begin_draft(*sequences[i], std::move(tasks[i].draft));
  }
}

// Buffers for the states that the drafter reads, of sequences that may ask for drafts; none while
// many sequences decode, since states cost them time and nothing is drafted.
void Engine::ask_for_stream(std::span<const Share> shares, std::span<SequenceShare> steps) {
  const std::span<const int> layers = drafter_->layers_read();
  if (layers.empty() || rows_for_drafts() <= 0) {
    return;
  }
  const std::size_t width = layers.size() * static_cast<std::size_t>(model_.hidden);
  std::size_t rows = 0;
  for (const Share& share : shares) {
    const bool wanted = may_ask_for_drafts(*share.sequence);
    rows += wanted ? static_cast<std::size_t>(share.tokens) : 0;
  }
  float* next = runner_->stream_memory(rows * width);
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (may_ask_for_drafts(*shares[i].sequence)) {
      const ops::Matrix<float> out(next, steps[i].tokens.size(), width);
      steps[i].stream = {layers, out};
      next += out.rows * width;
    }
  }
}

// Before tokens are chosen: a sequence that forks then takes along what the drafter has read.
void Engine::tell_drafter(std::span<const Share> shares, std::span<const SequenceShare> steps) {
  std::vector<DraftReading> readings;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    Sequence& sequence = *shares[i].sequence;
    if (steps[i].stream.out.rows > 0) {
      readings.push_back({.tokens = sequence.tokens,
                          .position = sequence.cached() - shares[i].tokens,
                          .taken = steps[i].tokens,
                          .states = steps[i].stream.out,
                          .state = &sequence.draft_state});
    }
  }
  if (readings.empty()) {
    return;
  }
  drafter_->read(readings);
  const double elapsed = step_clock_.lap();
  stats_.draft_seconds += elapsed;
  (reads_prompts_ ? throughput_.prefill_seconds : throughput_.decode_seconds) += elapsed;
}

bool Engine::may_ask_for_drafts(const Sequence& sequence) const {
  return sequence.spec->draft_tokens.value_or(config_.draft_tokens) > 0 &&
         sequence.spec->max_tokens > 1 && !sequence.is_watched();
}

bool Engine::may_draft(const Sequence& sequence) const {
  return may_ask_for_drafts(sequence) && sequence.is_decoding() &&
         sequence.finish == FinishReason::none && sequence.length() > sequence.prompt_length();
}

// Up to `rows` tokens, but no more than the answer may still have.
int Engine::tokens_to_draft(Sequence& sequence, int rows) const {
  const int most = sequence.spec->draft_tokens.value_or(config_.draft_tokens);
  const int left = sequence.prompt_length() + sequence.spec->max_tokens - sequence.length();
  // Accepted tokens of a wrong draft, which must be taken again, use the step's rows, too.
  const int room = std::min({rows, left - 1, most - sequence.uncommitted});
  if (room <= 0) {
    return 0;
  }
  if (!sequence.draft_length) {
    sequence.draft_length = drafter_->make_length();
  }
  return sequence.draft_length->next(room);
}

// Copies the cache, so that the step can verify the draft. Without room for it there is no draft.
void Engine::begin_draft(Sequence& sequence, std::vector<std::int32_t> draft) {
  sequence.draft = std::move(draft);
  if (!sequence.draft.empty()) {
    sequence.undrafted = sequence.cache->fork();
    // Prefixes may hold all states of recurrent layers: drop one and try again.
    if (!sequence.undrafted && model_.recurrent() != nullptr && drop_prefix()) {
      sequence.undrafted = sequence.cache->fork();
    }
  }
  if (!sequence.undrafted) {
    sequence.draft.clear();
  }
}

// Drops all drafts because there is no room. The step has not run: cache and copy are the same.
void Engine::drop_drafts() {
  for (const SequencePtr& sequence : running_) {
    sequence->forget_draft();
  }
}

// The same for a step that is being planned. Returns whether there were any.
bool Engine::drop_drafts(std::vector<Share>& shares) {
  bool any = false;
  for (Share& share : shares) {
    Sequence& sequence = *share.sequence;
    if (!sequence.draft.empty()) {
      any = true;
      sequence.forget_draft();
      share = {&sequence, sequence.pending(), 1,
               runner_->need(*sequence.cache, sequence.pending())};
    }
  }
  return any;
}

// Gives a sequence its tokens from the step's rows from `row` on: the token after its last one, and
// those after drafted tokens as long as each drafted token equals the token of the row before.
void Engine::verify(Sequence& sequence, std::size_t row, std::vector<TokenEvent>& events) {
  const bool from_logits = sequence.chooses_from_logits();
  const std::vector<std::int32_t> draft = std::exchange(sequence.draft, {});
  const auto drafted = static_cast<int>(draft.size());
  const int accepted_before = sequence.accepted_tokens;
  sequence.drafted_tokens += drafted;
  for (std::size_t right = 0;; ++right) {
    if (right == draft.size()) {
      sequence.undrafted.reset();  // the whole draft was right
      sequence.uncommitted = 0;
    }
    accept(sequence, row + right, from_logits, events);
    if (sequence.finish != FinishReason::none || right == draft.size() ||
        sequence.tokens.back() != draft[right]) {
      break;
    }
    ++sequence.accepted_tokens;
  }
  take_back(sequence);
  const int accepted = sequence.accepted_tokens - accepted_before;
  sequence.draft_length->observe(drafted, accepted);
  ++stats_.drafts;
  stats_.drafted_tokens += drafted;
  stats_.accepted_tokens += accepted;
  throughput_.decode_tokens += reads_prompts_ ? 0 : accepted;
}

// Restores the cache from before a wrong draft.
void Engine::take_back(Sequence& sequence) {
  if (sequence.undrafted) {
    sequence.cache = std::move(sequence.undrafted);
    sequence.uncommitted = sequence.pending() - 1;
  }
}

// Before an answer ends: takes the accepted tokens of a wrong draft, so that the cache is the same
// as without drafts.
void Engine::catch_up(Sequence& sequence) {
  take_back(sequence);
  const int tokens = sequence.uncommitted;
  if (tokens == 0 || !sequence.is_decoding() ||
      !runner_->has_room(runner_->need(*sequence.cache, tokens))) {
    return;
  }
  SequenceShare step;
  step.sequence = sequence.cache.get();
  step.tokens = sequence.next(tokens);
  step.logit_rows = 0;
  step.adapter = sequence.spec->adapter.get();
  runner_->forward(std::span(&step, 1), {}, {});
}

}  // namespace winnow::engine
