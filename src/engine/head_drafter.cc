#include "engine/head_drafter.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/engine.h"
#include "engine/token_budget.h"

namespace winnow::engine {
namespace {

using Tokens = std::span<const std::int32_t>;

// As many rows of a sequence wait for its next draft.
constexpr std::size_t kMostWaiting = kMostDrafted + 1;
// Sequences that use every expert.
constexpr int kAllExperts = 1 << 20;
// As many rows of a prompt are taken in one step, which no plan of memory counts.
constexpr std::size_t kPromptRows = 1024;

}  // namespace

// The cache has taken rows `begin` to next_row(); rows behind them wait.
struct HeadDrafter::State : DraftState {
  explicit State(HeadDrafter& drafter) : owner(drafter), used(drafter.calls_) {
    owner.states_.push_back(this);
  }
  ~State() override { std::erase(owner.states_, this); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  [[nodiscard]] std::unique_ptr<DraftState> fork() const override {
    auto copy = std::make_unique<State>(owner);
    copy->has_no_room = has_no_room;
    copy->cache = cache ? cache->fork() : nullptr;
    if (copy->cache) {
      copy->begin = begin;
      copy->waiting = waiting;
      copy->states = states;
    }
    return copy;
  }

  /// The first row that the cache has not taken.
  [[nodiscard]] int next_row() const { return begin + (cache ? cache->length() : 0); }
  [[nodiscard]] int known_rows() const { return next_row() + static_cast<int>(waiting.size()); }
  void close() {
    cache.reset();
    waiting.clear();
    states.clear();
    guess.reset();
  }
  /// Forgets rows of drafted tokens that have not become part of the sequence.
  void forget_wrong(Tokens tokens) {
    const Tokens from =
        tokens.subspan(std::min(tokens.size(), static_cast<std::size_t>(next_row())));
    const auto right = std::ranges::mismatch(waiting, from).in1 - waiting.begin();
    const std::size_t width = waiting.empty() ? 0 : states.size() / waiting.size();
    waiting.resize(static_cast<std::size_t>(right));
    states.resize(static_cast<std::size_t>(right) * width);
  }
  /// Goes on with these rows, or begins anew if it lacks those before them. Returns how many of
  /// them it knows already.
  std::size_t follow(const DraftReading& reading) {
    forget_wrong(reading.tokens);
    if (!cache || reading.position > known_rows()) {
      close();
      cache = owner.runner_->open({});
      begin = reading.position;
    }
    return std::min(static_cast<std::size_t>(known_rows() - reading.position),
                    reading.taken.size());
  }
  /// Rows from `first` on wait.
  void wait(const DraftReading& reading, std::size_t first) {
    for (std::size_t t = first; t < reading.taken.size(); ++t) {
      waiting.push_back(reading.taken[t]);
      const auto row = reading.states.row(t);
      states.insert(states.end(), row.begin(), row.end());
      guess.reset();
    }
  }
  /// Rows that wait and whose next tokens are part of the sequence, but for the last row: a draft
  /// begins with it.
  [[nodiscard]] std::size_t certain_rows(Tokens tokens) const {
    const int certain = static_cast<int>(tokens.size()) - 1 - next_row();
    return static_cast<std::size_t>(
        std::clamp(certain, 0, std::max(static_cast<int>(waiting.size()) - 1, 0)));
  }
  /// Lets a share take the first `count` rows that wait.
  void give_to(SequenceShare& share, std::size_t count) const {
    const std::size_t width = states.size() / waiting.size();
    share.input = {{states.data(), count, width}, /*own=*/false};
  }
  void note_taken(std::size_t count) {
    const std::size_t width = states.size() / waiting.size();
    waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(count));
    states.erase(states.begin(), states.begin() + static_cast<std::ptrdiff_t>(count * width));
  }

  HeadDrafter& owner;
  std::unique_ptr<SequenceState> cache;
  int begin = 0;
  std::vector<std::int32_t> waiting;  // the tokens of the rows that wait
  std::vector<float> states;          // the model's states there
  // What follows the sequence, if the cache has just taken its last row, and the head's state.
  std::optional<std::int32_t> guess;
  std::vector<float> own;
  std::uint64_t used;        // the last call with a task
  bool is_followed = true;   // else it has lost its cache, and has not asked for a draft since
  bool has_no_room = false;  // for this sequence: it gets no more drafts
};

// Rows that caches take in one step, without logits.
struct HeadDrafter::Intake {
  std::vector<State*> states;
  std::vector<SequenceShare> shares;

  /// The first `count` rows that wait; `tokens`: of the sequence.
  void add(State& state, Tokens tokens, std::size_t count) {
    if (count > 0) {
      SequenceShare& share = shares.emplace_back();
      share.sequence = state.cache.get();
      share.tokens = tokens.subspan(static_cast<std::size_t>(state.next_row()) + 1, count);
      share.logit_rows = 0;
      state.give_to(share, count);
      states.push_back(&state);
    }
  }
};

// A chunk of a prompt, of which the state knows the first rows.
struct HeadDrafter::Prompt {
  State* state;
  const DraftReading* reading;
  std::size_t known;

  [[nodiscard]] std::size_t first_row() const {
    return static_cast<std::size_t>(reading->position) + known;
  }
  /// Rows whose next tokens are part of the sequence, but for the last.
  [[nodiscard]] std::size_t certain() const {
    return std::min(reading->taken.size() - known - 1, reading->tokens.size() - first_row() - 1);
  }
  /// Of these at most kPromptRows from `first` on.
  [[nodiscard]] SequenceShare share(std::size_t first) const {
    const std::size_t count = std::min(kPromptRows, certain() - first);
    SequenceShare share;
    share.sequence = state->cache.get();
    share.tokens = reading->tokens.subspan(first_row() + first + 1, count);
    share.logit_rows = 0;
    share.input = {reading->states.slice(known + first, known + first + count), /*own=*/false};
    return share;
  }
};

struct HeadDrafter::Job : DraftJob {
  Job(DraftTask& wanted, int tokens, State& of) : DraftJob(wanted, tokens), state(&of) {}

  State* state;
  std::unique_ptr<SequenceState> ahead = {};  // the cache with drafted tokens
  std::vector<float> own = {};                // the head's state at the last of them
};

HeadDrafter::HeadDrafter(const Backend& head, const EngineConfig& config)
    : head_(head), runner_(head.make_runner(draft_runner_config(config))) {}

HeadDrafter::~HeadDrafter() = default;

std::span<const int> HeadDrafter::layers_read() const {
  return head_.spec().draft_head->after;
}

std::unique_ptr<DraftLength> HeadDrafter::make_length() const {
  return std::make_unique<ModelLength>();
}

DraftMemory HeadDrafter::memory() const {
  return {.bytes = runner_->page_bytes(),
          .capacity_bytes = runner_->capacity_bytes(),
          .weight_bytes = head_.weight_bytes_per_step(kAllExperts)};
}

HeadDrafter::State& HeadDrafter::state_of(std::unique_ptr<DraftState>& state) {
  if (!state) {
    state = std::make_unique<State>(*this);
  }
  return static_cast<State&>(*state);
}

// Rows that wait and rows of prompts have different memory, so they are taken one after another.
void HeadDrafter::read(std::span<const DraftReading> readings) {
  Intake waited;
  std::vector<Prompt> prompts;
  for (const DraftReading& reading : readings) {
    State& state = state_of(*reading.state);
    if (state.has_no_room || !state.is_followed) {
      continue;
    }
    if (reading.taken.size() > kMostWaiting) {  // a prompt, which asks for no drafts yet
      state.used = calls_;
    }
    const std::size_t known = state.follow(reading);
    if (reading.taken.size() - known > kMostWaiting) {
      waited.add(state, reading.tokens, state.waiting.size());
      prompts.push_back({&state, &reading, known});
    } else {
      state.wait(reading, known);
      const bool many = state.waiting.size() > kMostWaiting;
      waited.add(state, reading.tokens, many ? state.certain_rows(reading.tokens) : 0);
    }
  }
  take(waited);
  for (std::size_t i = 0; i < waited.states.size(); ++i) {
    waited.states[i]->note_taken(waited.shares[i].tokens.size());
  }
  read_prompts(prompts);
}

// Takes rows straight from the model's states, but for the last, with which a draft begins.
void HeadDrafter::read_prompts(std::span<const Prompt> prompts) {
  Intake intake;
  std::size_t first = 0;
  do {
    intake = {};
    for (const Prompt& prompt : prompts) {
      if (prompt.state->cache && first < prompt.certain()) {
        intake.shares.push_back(prompt.share(first));
        intake.states.push_back(prompt.state);
      }
    }
    take(intake);
    first += kPromptRows;
  } while (!intake.states.empty());
  for (const Prompt& prompt : prompts) {
    if (prompt.state->cache) {
      prompt.state->wait(*prompt.reading, prompt.known + prompt.certain());
    }
  }
}

// Takes what there is room for; afterwards `intake` has these alone.
void HeadDrafter::take(Intake& intake) {
  auto& [states, shares] = intake;
  const auto free_more = [&] {
    const bool dropped = drop_idle();
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (!states[i]->cache) {  // it was one of these
        states.erase(states.begin() + static_cast<std::ptrdiff_t>(i));
        shares.erase(shares.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    return dropped;
  };
  for (State* state : leave_out_without_room(*runner_, states, shares, free_more)) {
    state->close();
    state->has_no_room = true;
  }
  if (!shares.empty()) {
    runner_->forward(shares, {}, {});
  }
}

void HeadDrafter::draft(std::span<DraftTask> tasks, int rows) {
  ++calls_;
  std::vector<Job> jobs = begin(tasks, rows);
  take_waiting(jobs);
  extend(jobs);
}

// The tasks whose rows are all known.
std::vector<HeadDrafter::Job> HeadDrafter::begin(std::span<DraftTask> tasks, int rows) {
  std::vector<int> wanted;
  for (const DraftTask& task : tasks) {
    State& state = state_of(*task.state);
    state.used = calls_;
    state.is_followed = true;
    state.forget_wrong(task.tokens);
    const bool knows_all =
        state.cache && state.known_rows() + 1 == static_cast<int>(task.tokens.size());
    wanted.push_back(knows_all ? task.most : 0);
  }
  const std::vector<int> dealt = deal_tokens(wanted, rows);
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (dealt[i] > 0) {
      jobs.emplace_back(tasks[i], dealt[i], state_of(*tasks[i].state));
    }
  }
  return jobs;
}

// Takes the rows that wait, each with the token after it. The last one's choice is the first guess.
void HeadDrafter::take_waiting(std::span<Job> jobs) {
  std::vector<Job*> readers;
  std::vector<SequenceShare> shares;
  for (Job& job : jobs) {
    State& state = *job.state;
    if (state.waiting.empty()) {
      continue;
    }
    const std::size_t count = state.waiting.size();
    SequenceShare share = job.share(*state.cache, job.task->tokens.last(count), /*drafts=*/true);
    state.give_to(share, count);
    state.own.resize(static_cast<std::size_t>(head_.spec().hidden));
    share.state = state.own;
    readers.push_back(&job);
    shares.push_back(share);
  }
  for (const Job* job :
       leave_out_without_room(*runner_, readers, shares, [this] { return drop_idle(); })) {
    job->state->close();
    job->state->has_no_room = true;
  }
  if (shares.empty()) {
    return;
  }
  next_.resize(shares.size());
  runner_->forward(shares, {}, next_);
  for (std::size_t i = 0; i < shares.size(); ++i) {
    readers[i]->state->note_taken(shares[i].tokens.size());
    readers[i]->state->guess = next_[i];
  }
}

// Drafts from where the caches have taken all rows.
void HeadDrafter::extend(std::span<Job> jobs) {
  std::vector<Job*> active;
  for (Job& job : jobs) {
    if (job.state->guess && job.add(*job.state->guess) && fork(job)) {
      active.push_back(&job);
    }
  }
  while (!active.empty()) {
    std::vector<SequenceShare> shares;
    for (Job* job : active) {
      SequenceShare share = job->share(*job->ahead, std::span(&job->task->draft.back(), 1), true);
      share.input = {{job->own.data(), 1, job->own.size()}, /*own=*/true};
      share.state = job->own;
      shares.push_back(share);
    }
    leave_out_without_room(*runner_, active, shares, [this] { return drop_idle(); });
    if (shares.empty()) {
      return;
    }
    next_.resize(shares.size());
    runner_->forward(shares, {}, next_);
    std::size_t row = 0;
    std::erase_if(active, [&](Job* job) { return !job->add(next_[row++]); });
  }
}

bool HeadDrafter::fork(Job& job) {
  do {
    job.ahead = job.state->cache->fork();
  } while (!job.ahead && drop_idle());
  job.own = job.state->own;
  return job.ahead != nullptr;
}

// Frees the cache that is least likely to be used again; false if all are in use.
bool HeadDrafter::drop_idle() {
  const auto oldest = std::ranges::min_element(states_, {}, [](const State* state) {
    return state->cache ? state->used : ~std::uint64_t{0};
  });
  if (oldest == states_.end() || !(*oldest)->cache || (*oldest)->used + kIdleCalls > calls_) {
    return false;
  }
  (*oldest)->close();
  (*oldest)->is_followed = false;
  return true;
}

}  // namespace winnow::engine
