#include "engine/model_drafter.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/draft_job.h"
#include "engine/engine.h"
#include "engine/state_source.h"
#include "engine/token_budget.h"
#include "engine/weight_memory.h"

namespace winnow::engine {
namespace {

using Tokens = std::span<const std::int32_t>;

constexpr std::size_t kMostPrefixes = 64;

int shared_beginning(Tokens a, Tokens b) {
  return static_cast<int>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

// The cache has taken `tokens`, with which the sequence begins.
struct ModelDrafter::State : DraftState {
  explicit State(ModelDrafter& drafter) : owner(drafter) { owner.states_.push_back(this); }
  ~State() override {
    std::erase(owner.states_, this);
    owner.keep(tokens, std::move(cache));
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  [[nodiscard]] int length() const { return static_cast<int>(tokens.size()); }
  void drop_ahead() {
    ahead.reset();
    drafted.clear();
  }
  void close() {
    drop_ahead();
    cache.reset();
    tokens.clear();
    guess.reset();
  }

  ModelDrafter& owner;
  std::unique_ptr<SequenceState> cache;
  std::vector<std::int32_t> tokens;
  std::optional<std::int32_t> guess;     // what follows `tokens`, if the cache has just taken them
  std::unique_ptr<SequenceState> ahead;  // the cache with `drafted` after `tokens`; may be null
  std::vector<std::int32_t> drafted;
  int branch = 0;            // another sequence parts here: leave a state for it
  std::uint64_t used = 0;    // the last call with a task
  bool has_no_room = false;  // for this sequence: it gets no more drafts
};

struct ModelDrafter::Job : DraftJob {
  Job(DraftTask& wanted, int tokens, State& of) : DraftJob(wanted, tokens), state(&of) {}

  State* state;

  // Tokens of the sequence that the cache has not taken, up to where another one parts from it.
  [[nodiscard]] int pending() const {
    const int length = state->length();
    return (state->branch > length ? state->branch : static_cast<int>(task->tokens.size())) -
           length;
  }
  [[nodiscard]] bool has_read_all() const { return state->tokens.size() == task->tokens.size(); }
};

ModelDrafter::ModelDrafter(const Backend& model, const EngineConfig& config)
    : model_(model),
      step_tokens_(config.step_tokens),
      keeps_prefixes_(config.reuse_prefixes),
      weight_bytes_(static_cast<std::size_t>(engine::weight_bytes(model.spec(), config.weights))),
      runner_(model.make_runner(draft_runner_config(config))) {}

ModelDrafter::~ModelDrafter() = default;

void ModelDrafter::draft(std::span<DraftTask> tasks, int rows) {
  ++calls_;
  std::vector<Job> jobs = begin(tasks, rows);
  catch_up(jobs);
  extend(jobs);
}

std::unique_ptr<DraftLength> ModelDrafter::make_length() const {
  return std::make_unique<ModelLength>();
}

void ModelDrafter::drop_prefixes() {
  while (prefixes_.take_oldest()) {
  }
}

DraftMemory ModelDrafter::memory() const {
  return {.bytes = runner_->page_bytes(),
          .capacity_bytes = runner_->capacity_bytes(),
          .weight_bytes = weight_bytes_};
}

// The tasks that this call serves. If several sequences begin with the same unread tokens, only the
// first of them reads now. The others wait, and begin with the state that it leaves where they
// part.
std::vector<ModelDrafter::Job> ModelDrafter::begin(std::span<DraftTask> tasks, int rows) {
  const int positions = model_.spec().max_positions;
  std::vector<int> wanted;
  for (const DraftTask& task : tasks) {
    // The last drafted token is not taken.
    const int room = positions - static_cast<int>(task.tokens.size()) + 1;
    wanted.push_back(positions > 0 ? std::clamp(task.most, 0, std::max(room, 0)) : task.most);
  }
  const std::vector<int> dealt = deal_tokens(wanted, rows);
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    DraftTask& task = tasks[i];
    if (dealt[i] == 0 || state_of(task).has_no_room) {
      continue;
    }
    State& state = state_of(task);
    state.used = calls_;
    follow(state, task.tokens);
    const auto unread = task.tokens.first(task.tokens.size() - 1);
    const auto leads = [&](const Job& other) {
      const int common = shared_beginning(unread, other.task->tokens);
      const int read = other.state->length();
      if (!keeps_prefixes_ || common <= read || common < state.length() + kLeastPrefix) {
        return false;
      }
      int& branch = other.state->branch;
      branch = branch > read ? std::min(branch, common) : common;
      return true;
    };
    if (std::ranges::none_of(jobs, leads)) {
      jobs.emplace_back(task, dealt[i], state);
    }
  }
  return jobs;
}

ModelDrafter::State& ModelDrafter::state_of(DraftTask& task) {
  if (!*task.state) {
    *task.state = std::make_unique<State>(*this);
  }
  return static_cast<State&>(**task.state);
}

// Brings the state up to the sequence's tokens without running the model.
void ModelDrafter::follow(State& state, Tokens tokens) {
  const std::size_t known = state.tokens.size();
  const std::size_t end = known + state.drafted.size();
  if (state.ahead && tokens.size() > end &&
      std::ranges::equal(state.drafted, tokens.subspan(known, state.drafted.size()))) {
    state.cache = std::move(state.ahead);
    state.tokens.insert(state.tokens.end(), state.drafted.begin(), state.drafted.end());
    state.guess.reset();
  }
  state.drop_ahead();
  if (!state.cache || tokens.size() >= state.tokens.size() + kLeastPrefix) {
    open(state, tokens);
  }
}

// Goes on from the longest known prefix, if that is worth it, or else from nothing.
void ModelDrafter::open(State& state, Tokens tokens) {
  const PrefixCache::Match match = prefixes_.find(tokens.first(tokens.size() - 1));
  if (match.length >= state.length() + kLeastPrefix) {
    if (auto cache = match.state->fork()) {
      state.close();
      state.cache = std::move(cache);
      const auto known = tokens.first(static_cast<std::size_t>(match.length));
      state.tokens.assign(known.begin(), known.end());
    }
  }
  if (!state.cache) {
    state.cache = runner_->open({});
  }
  if (keeps_prefixes_ && match.common >= state.length() + kLeastPrefix) {
    state.branch = match.common;
  }
}

// Reads tokens of the sequences that the caches have not taken.
void ModelDrafter::catch_up(std::span<Job> jobs) {
  std::vector<int> pending;
  for (const Job& job : jobs) {
    pending.push_back(job.pending());
  }
  const std::vector<int> dealt = deal_tokens(pending, step_tokens_);
  std::vector<Job*> readers;
  std::vector<SequenceShare> shares;
  // A device runs consecutive shares of one token as a step, and others as prompts.
  for (const bool single : {true, false}) {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const auto count = static_cast<std::size_t>(dealt[i]);
      if (count == 0 || (count == 1) != single) {
        continue;
      }
      const Job& job = jobs[i];
      const auto next = job.task->tokens.subspan(job.state->tokens.size(), count);
      const bool all = job.state->tokens.size() + count == job.task->tokens.size();
      readers.push_back(&jobs[i]);
      shares.push_back(job.share(*job.state->cache, next, all));
    }
  }
  for (const Job* job : fit(readers, shares)) {
    job->state->close();
    job->state->has_no_room = true;
  }
  if (shares.empty()) {
    return;
  }
  std::size_t rows = 0;
  for (const SequenceShare& share : shares) {
    rows += share.logit_rows;
  }
  next_.resize(rows);
  runner_->forward(shares, {}, next_);
  std::size_t row = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const bool drafts = shares[i].logit_rows > 0;
    note_read(*readers[i], static_cast<int>(shares[i].tokens.size()),
              drafts ? next_[row++] : ops::kNoToken);
  }
}

void ModelDrafter::note_read(const Job& job, int count, std::int32_t next) {
  State& state = *job.state;
  const auto taken = job.task->tokens.subspan(state.tokens.size(), static_cast<std::size_t>(count));
  state.tokens.insert(state.tokens.end(), taken.begin(), taken.end());
  state.guess.reset();
  if (job.has_read_all()) {
    state.guess = next;
  }
  if (state.length() == state.branch) {
    keep(state.tokens, state.cache->fork());
  }
}

// Drafts from where the caches have taken all tokens.
void ModelDrafter::extend(std::span<Job> jobs) {
  std::vector<Job*> active;
  for (Job& job : jobs) {
    State& state = *job.state;
    if (state.guess && job.has_read_all() && job.add(*state.guess) && fork(state)) {
      active.push_back(&job);
    }
  }
  while (!active.empty()) {
    std::vector<SequenceShare> shares;
    for (const Job* job : active) {
      shares.push_back(
          job->share(*job->state->ahead, std::span(&job->task->draft.back(), 1), true));
    }
    for (const Job* job : fit(active, shares)) {
      job->state->drop_ahead();
    }
    if (shares.empty()) {
      return;
    }
    next_.resize(shares.size());
    runner_->forward(shares, {}, next_);
    std::size_t row = 0;
    std::erase_if(active, [&](Job* job) {
      job->state->drafted.push_back(job->task->draft.back());
      return !job->add(next_[row++]);
    });
  }
}

bool ModelDrafter::fork(State& state) {
  do {
    state.ahead = state.cache->fork();
  } while (!state.ahead && drop_idle());
  return state.ahead != nullptr;
}

// Makes room for the shares, or leaves out the last ones, and returns the jobs of these.
std::vector<ModelDrafter::Job*> ModelDrafter::fit(std::vector<Job*>& jobs,
                                                  std::vector<SequenceShare>& shares) {
  return leave_out_without_room(*runner_, jobs, shares, [this] { return drop_idle(); });
}

// Frees what is least likely to be used again; false if everything is in use.
bool ModelDrafter::drop_idle() {
  if (prefixes_.take_oldest()) {
    return true;
  }
  const auto oldest = std::ranges::min_element(states_, {}, [](const State* state) {
    return state->cache ? state->used : ~std::uint64_t{0};
  });
  if (oldest == states_.end() || !(*oldest)->cache || (*oldest)->used + kIdleCalls > calls_) {
    return false;
  }
  (*oldest)->close();
  return true;
}

void ModelDrafter::keep(Tokens tokens, std::unique_ptr<SequenceState> cache) {
  // A step that failed may have left a cache of another length.
  if (keeps_prefixes_ && cache && cache->length() >= kLeastPrefix &&
      cache->length() == static_cast<int>(tokens.size())) {
    prefixes_.insert(tokens, std::move(cache));
  }
  while (prefixes_.size() > kMostPrefixes) {
    prefixes_.take_oldest();
  }
}

}  // namespace winnow::engine
