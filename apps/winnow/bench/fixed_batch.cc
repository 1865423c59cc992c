#include "apps/winnow/bench/fixed_batch.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "apps/winnow/interrupt.h"
#include "apps/winnow/progress.h"
#include "base/error.h"
#include "base/random.h"

namespace winnow::cli {
namespace {

using Sequence = std::unique_ptr<engine::SequenceState>;
using Sequences = std::vector<Sequence>;

class Bench {
 public:
  Bench(const engine::Backend& backend, const engine::EngineConfig& config, const BenchPlan& plan)
      : model_(backend.spec()),
        config_(config),
        plan_(plan),
        backend_(backend),
        drafter_(config.draft_model != nullptr ? engine::make_drafter(config) : nullptr),
        runner_(backend.make_runner(config)) {
    Random random(1);
    // In addition to the measured steps, two steps count what queries see and one warms up.
    longest_ = std::max(plan.decode_depth() + plan.generate, plan.prefill_depth() + plan.prefill) +
               3 + plan.drafted;
    for (int i = 0; i < longest_; ++i) {
      tokens_.push_back(static_cast<std::int32_t>(random.uniform() * model_.vocab));
    }
  }

  BenchResult run() {
    result_.batch = plan_.batch ? *plan_.batch : fitting_batch();
    next_.resize(static_cast<std::size_t>(result_.batch));
    plan_.depth ? run_at_depth() : run_from_start();
    result_.memory_in_use = backend_.memory_in_use();
    result_.rank_exchange = backend_.rank_exchange();
    const std::size_t entry =
        model::cache_shape(model_).page_layout(config_.cache.format).entry_bytes();
    result_.entry_bytes_per_step =
        static_cast<std::size_t>(seen_) / (2 * static_cast<std::size_t>(plan_.repeat)) * entry;
    return std::move(result_);
  }

 private:
  void run_at_depth() {
    Sequences base = open(result_.batch, plan_.decode_depth());
    result_.fill_tokens_per_s = prefill(base, plan_.prefill_depth(), "fill");
    warm_up(fork(base.front()));
    measure_prefill(base);
    note_cache(base);
    for (int i = 0; i < plan_.repeat; ++i) {
      measure_decode(fork(base));
    }
  }

  void run_from_start() {
    warm_up(std::move(open(1, plan_.prefill).front()));
    for (int i = 0; i < plan_.repeat; ++i) {
      Sequences sequences =
          open(std::min(plan_.computed.value_or(result_.batch), result_.batch), plan_.prefill);
      result_.prefill_tokens_per_s.push_back(prefill(sequences, plan_.prefill, "prefill"));
      copy_first(sequences, result_.batch - static_cast<int>(sequences.size()));
      note_cache(sequences);
      measure_decode(std::move(sequences));
    }
  }

  // Adds `count` copies of the first sequence, which share nothing with it. All prompts are the
  // same, so each holds what computing its prompt would give.
  void copy_first(Sequences& sequences, int count) {
    if (count == 0) {
      return;
    }
    const std::size_t tables = std::size_t{64} << 20;  // more than a copy needs besides entries
    const auto copies = runner_->make_host_copies(2 * sequences.front()->usage().bytes + tables);
    const auto copy = copies->copy(*sequences.front(), [] { return false; });
    require(copy != nullptr, "--computed: a copy of a sequence does not fit into host memory");
    ProgressBar progress("copy", count, "sequences");
    for (int i = 1; i <= count; ++i) {
      sequences.push_back(copies->restore({plan_.prefill, longest_}, *copy).sequence);
      require(sequences.back() != nullptr, "the cache is full: allow it more memory with --kv-gib");
      progress.update(i);
    }
  }

  // The number of sequences that the cache holds at full length. Where decisions depend on the
  // tokens, each head may need one more page before its decision is known.
  [[nodiscard]] int fitting_batch() {
    Sequences probe = open(1, plan_.decode_depth());
    next_.resize(1);
    prefill(probe, longest_, "fit");
    const ops::PageLayout page = model::cache_shape(model_).page_layout(config_.cache.format);
    const bool decides = config_.cache.traits().learned();
    const std::size_t spare =
        decides ? static_cast<std::size_t>(backend_.cache_shape().held_heads()) : 0;
    const std::size_t bytes = probe[0]->usage().bytes + spare * page.page_bytes();
    const auto batch = static_cast<int>(
        std::min<std::size_t>(config_.cache.max_bytes / bytes, BenchPlan::kMostFitted));
    require(batch >= 1, "the cache is full: allow it more memory with --kv-gib");
    return batch;
  }

  [[nodiscard]] Sequences open(int count, int prompt) {
    Sequences sequences;
    for (int i = 0; i < count; ++i) {
      sequences.push_back(runner_->open({prompt, longest_}));
    }
    return sequences;
  }

  static Sequence fork(const Sequence& sequence) {
    Sequence copy = sequence->fork();
    require(copy != nullptr, "the cache is full: allow it more memory with --kv-gib");
    return copy;
  }

  static Sequences fork(const Sequences& sequences) {
    Sequences forks;
    for (const Sequence& sequence : sequences) {
      forks.push_back(fork(sequence));
    }
    return forks;
  }

  [[nodiscard]] std::span<const std::int32_t> next(const engine::SequenceState& sequence,
                                                   int count) const {
    return std::span(tokens_).subspan(static_cast<std::size_t>(sequence.length()),
                                      static_cast<std::size_t>(count));
  }

  [[nodiscard]] bool has_room(std::span<const engine::SequenceShare> shares) const {
    kvcache::PageNeed need;
    for (const auto& share : shares) {
      need += runner_->need(*share.sequence, static_cast<int>(share.tokens.size()));
    }
    return runner_->has_room(need);
  }

  void forward(std::span<const engine::SequenceShare> shares, std::size_t rows) {
    stop_if_interrupted();
    require(has_room(shares), "the cache is full: allow it more memory with --kv-gib");
    runner_->forward(shares, {}, std::span(next_).first(rows));
  }

  // Reads the next `left` tokens, or as many as one step takes and the cache certainly has room
  // for, into a sequence. Returns the number.
  int read_chunk(engine::SequenceState& sequence, int left) {
    engine::SequenceShare share;
    share.sequence = &sequence;
    int chunk = std::min(left, config_.step_tokens);
    share.tokens = next(sequence, chunk);
    while (chunk > 1 && !has_room(std::span(&share, 1))) {
      chunk /= 2;
      share.tokens = next(sequence, chunk);
    }
    share.logit_rows = chunk == left ? 1 : 0;
    forward(std::span(&share, 1), share.logit_rows);
    return chunk;
  }

  // Reads `count` tokens into every sequence, one sequence after another; returns tokens per
  // second.
  double prefill(Sequences& sequences, int count, const char* label) {
    const std::int64_t total = std::int64_t{count} * static_cast<int>(sequences.size());
    std::int64_t done = 0;
    ProgressBar progress(label, total, "tokens");
    const auto start = std::chrono::steady_clock::now();
    for (auto& sequence : sequences) {
      for (int left = count; left > 0;) {
        const int chunk = read_chunk(*sequence, left);
        left -= chunk;
        done += chunk;
        progress.update(done);
        if (plan_.growth && sequence == sequences.front()) {
          const engine::CacheUsage usage = sequence->usage();
          result_.growth.push_back({usage.tokens, usage.bytes, usage.dense_bytes});
        }
      }
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    result_.paths.prompt = runner_->last_paths().prompt;
    return static_cast<double>(total) / elapsed.count();
  }

  // One token for every sequence. Returns the number of entries read, by all ranks that hold them,
  // if asked to count.
  std::int64_t decode_step(Sequences& sequences, bool count) {
    const auto heads = static_cast<std::size_t>(model_.cached_heads());
    std::vector<std::int32_t> visible(count ? heads * sequences.size() : 0);
    std::vector<engine::SequenceShare> shares;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      engine::SequenceShare share{sequences[i].get(), next(*sequences[i], 1), 1, {}};
      if (count) {
        share.visible = {visible.data() + i * heads, 1, heads};
      }
      shares.push_back(share);
    }
    forward(shares, shares.size());
    std::int64_t total = 0;
    const kvcache::CacheShape shape = backend_.cache_shape();
    for (std::size_t i = 0; i < visible.size(); ++i) {
      const auto head = static_cast<int>(i % heads);
      total += std::int64_t{visible[i]} * shape.held_heads(head, head + 1);
    }
    return total;
  }

  // Touches weights, scratch memory and kernels once.
  void warm_up(Sequence sequence) {
    next_.resize(std::max<std::size_t>(next_.size(), 1));
    read_chunk(*sequence, plan_.prefill);
    Sequences one;
    one.push_back(std::move(sequence));
    decode_step(one, false);
  }

  // Quest treats the prompt differently from the answer, so a measured prompt needs a state that is
  // still in the prompt.
  void measure_prefill(const Sequences& base) {
    Sequences own;
    if (config_.cache.traits().selects && plan_.prefill_depth() > 0) {
      own = open(result_.batch, plan_.prefill_depth() + plan_.prefill);
      prefill(own, plan_.prefill_depth(), "fill");
    }
    for (int i = 0; i < plan_.repeat; ++i) {
      Sequences prefilled = fork(own.empty() ? base : own);
      result_.prefill_tokens_per_s.push_back(prefill(prefilled, plan_.prefill, "prefill"));
    }
  }

  void note_cache(const Sequences& base) {
    std::int64_t dense_entries = 0;
    result_.kv_bytes = result_.dense_bytes = 0;
    result_.live_entries = 0;
    for (const auto& sequence : base) {
      const engine::CacheUsage usage = sequence->usage();
      result_.kv_bytes += usage.bytes;
      result_.dense_bytes += usage.dense_bytes;
      result_.live_entries += usage.live_entries;
      dense_entries += usage.dense_entries;
    }
    result_.compression_ratio =
        result_.live_entries == 0
            ? 1.0
            : static_cast<double>(dense_entries) / static_cast<double>(result_.live_entries);
  }

  void measure_decode(Sequences sequences) {
    ProgressBar progress("decode", plan_.generate, "steps");
    seen_ += decode_step(sequences, true);  // copies the shared end of the window
    decode_step(sequences, false);          // records the graph of a step
    const auto start = std::chrono::steady_clock::now();
    for (int step = 1; step <= plan_.generate; ++step) {
      decode_step(sequences, false);
      progress.update(step);
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    result_.paths.step = runner_->last_paths().step;
    result_.decode_tokens_per_s.push_back(static_cast<double>(plan_.generate) * result_.batch /
                                          elapsed.count());
    if (plan_.drafted > 0) {
      result_.verify_steps_per_s.push_back(measure_verify(sequences.front()));
    }
    if (drafter_) {
      result_.drafts_per_s.push_back(measure_draft());
    }
    seen_ += decode_step(sequences, true);
  }

  // Steps that verify drafts whose tokens are all wrong. Returns steps per second.
  double measure_verify(Sequence& sequence) {
    const int rows = 1 + plan_.drafted;
    next_.resize(static_cast<std::size_t>(rows));
    const auto verify = [&] {
      Sequence before = fork(sequence);
      engine::SequenceShare share{
          sequence.get(), next(*sequence, rows), static_cast<std::size_t>(rows), {}};
      ask_for_stream(share);
      forward(std::span(&share, 1), share.logit_rows);
      sequence = std::move(before);
    };
    verify();
    const auto start = std::chrono::steady_clock::now();
    for (int step = 0; step < plan_.generate; ++step) {
      verify();
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    return static_cast<double>(plan_.generate) / elapsed.count();
  }

  // The states that a head reads, as in an engine.
  void ask_for_stream(engine::SequenceShare& share) {
    const std::span<const int> layers =
        drafter_ != nullptr ? drafter_->layers_read() : std::span<const int>();
    if (!layers.empty()) {
      const std::size_t rows = share.tokens.size();
      const std::size_t width = layers.size() * static_cast<std::size_t>(model_.hidden);
      share.stream = {layers, {runner_->stream_memory(rows * width), rows, width}};
    }
  }

  // Drafts of a model, each after one more token that it had not drafted. Returns drafts per
  // second.
  double measure_draft() {
    const int depth = plan_.decode_depth() + 1;
    std::unique_ptr<engine::DraftState> state;
    int known = 0;  // tokens whose states a head has read
    const auto draft = [&](int tokens) {
      for (; known + 1 < tokens; known += read_states(state, known, tokens - 1 - known)) {
      }
      engine::DraftTask task{.tokens = std::span(tokens_).first(static_cast<std::size_t>(tokens)),
                             .most = plan_.drafted,
                             .state = &state};
      drafter_->draft(std::span(&task, 1), plan_.drafted);
      return !task.draft.empty();
    };
    for (int chunks = depth / config_.step_tokens + 2; !draft(depth); --chunks) {
      require(chunks > 0, "the draft model has no room for {} tokens: see --kv-gib", depth);
    }
    const auto start = std::chrono::steady_clock::now();
    for (int step = 1; step <= plan_.generate; ++step) {
      draft(depth + step);
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    return static_cast<double>(plan_.generate) / elapsed.count();
  }

  // Gives a head that drafts states of some of the next `count` tokens, all of them zeros, and
  // returns their number.
  int read_states(std::unique_ptr<engine::DraftState>& state, int first, int count) {
    count = std::min(count, config_.step_tokens);
    const std::size_t width =
        drafter_->layers_read().size() * static_cast<std::size_t>(model_.hidden);
    if (width > 0) {
      const auto rows = static_cast<std::size_t>(count);
      const std::vector<float> states(rows * width);
      const auto tokens = std::span<const std::int32_t>(tokens_);
      const engine::DraftReading reading{
          .tokens = tokens.first(static_cast<std::size_t>(first) + rows + 1),
          .position = first,
          .taken = tokens.subspan(static_cast<std::size_t>(first), rows),
          .states = {states.data(), rows, width},
          .state = &state};
      drafter_->read(std::span(&reading, 1));
    }
    return count;
  }

  const model::ModelSpec& model_;
  const engine::EngineConfig& config_;
  BenchPlan plan_;
  int longest_ = 0;
  const engine::Backend& backend_;
  std::unique_ptr<engine::Drafter> drafter_;  // null: no draft model
  std::unique_ptr<engine::Runner> runner_;
  std::int64_t seen_ = 0;  // entries seen, in two steps of each repetition
  std::vector<std::int32_t> next_;
  std::vector<std::int32_t> tokens_;
  BenchResult result_;
};

}  // namespace

BenchResult run_bench(const engine::Backend& backend, const engine::EngineConfig& config,
                      const BenchPlan& plan) {
  return Bench(backend, config, plan).run();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2.0;
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) {
    return 0.0;
  }
  const auto count = static_cast<double>(values.size());
  const auto index = static_cast<std::size_t>(std::max(0.0, std::ceil(q * count) - 1.0));
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(index));
  return values[index];
}

}  // namespace winnow::cli
