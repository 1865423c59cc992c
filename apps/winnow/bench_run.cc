#include "bench_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "interrupt.h"
#include "progress.h"

namespace winnow::cli {
namespace {

using Sequences = std::vector<std::unique_ptr<engine::SequenceState>>;

class Bench {
 public:
  Bench(const engine::Backend& backend, const engine::EngineConfig& config, const BenchPlan& plan)
      : model_(backend.config()),
        config_(config),
        plan_(plan),
        runner_(backend.make_runner(config)),
        best_(static_cast<std::size_t>(plan.batch)) {
    Random random(1);
    // Beside the measured steps there are two that count what is seen.
    longest_ =
        std::max(plan.decode_depth() + plan.generate, plan.prefill_depth() + plan.prefill) + 2;
    for (int i = 0; i < longest_; ++i) {
      tokens_.push_back(static_cast<std::int32_t>(random.uniform() * model_.vocab));
    }
  }

  BenchResult run() {
    Sequences base = open(plan_.decode_depth());
    result_.fill_tokens_per_s = prefill(base, plan_.prefill_depth(), "fill");
    warm_up(base);
    Sequences prefilled = measure_prefill(base);
    if (!plan_.depth) {
      base = std::move(prefilled);
    }
    prefilled.clear();
    note_cache(base);
    measure_decode(base);
    return std::move(result_);
  }

 private:
  [[nodiscard]] Sequences open(int prompt) {
    Sequences sequences;
    for (int i = 0; i < plan_.batch; ++i) {
      sequences.push_back(runner_->open({prompt, longest_}));
    }
    return sequences;
  }

  static Sequences fork(const Sequences& sequences) {
    Sequences forks;
    for (const auto& sequence : sequences) {
      forks.push_back(sequence->fork());
      require(forks.back() != nullptr, "the cache is full: allow it more memory with --kv-gib");
    }
    return forks;
  }

  [[nodiscard]] std::span<const std::int32_t> next(const engine::SequenceState& sequence,
                                                   int count) const {
    return std::span(tokens_).subspan(static_cast<std::size_t>(sequence.length()),
                                      static_cast<std::size_t>(count));
  }

  void forward(std::span<const engine::SequenceShare> shares, std::size_t rows) {
    stop_if_interrupted();
    std::vector<engine::Growth> growths;
    for (const auto& share : shares) {
      growths.push_back({share.sequence, static_cast<int>(share.tokens.size())});
    }
    require(runner_->has_room(growths), "the cache is full: allow it more memory with --kv-gib");
    runner_->forward(shares, {}, std::span(best_).first(rows));
  }

  // Reads `count` tokens into every sequence, one sequence after another; returns tokens per
  // second.
  double prefill(Sequences& sequences, int count, const char* label) {
    const std::int64_t total = std::int64_t{count} * plan_.batch;
    std::int64_t done = 0;
    ProgressBar progress(label, total, "tokens");
    const auto start = std::chrono::steady_clock::now();
    for (auto& sequence : sequences) {
      for (int left = count; left > 0;) {
        const int chunk = std::min(left, config_.step_tokens);
        left -= chunk;
        const std::size_t rows = left == 0 ? 1 : 0;
        const engine::SequenceShare share{sequence.get(), next(*sequence, chunk), rows, {}};
        forward(std::span(&share, 1), rows);
        done += chunk;
        progress.update(done);
      }
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    return static_cast<double>(total) / elapsed.count();
  }

  // One token for every sequence. Returns how many entries were seen, if asked to count.
  std::int64_t decode_step(Sequences& sequences, bool count) {
    const auto heads = static_cast<std::size_t>(model_.layers * model_.kv_heads);
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
    for (const std::int32_t entries : visible) {
      total += entries;
    }
    return total;
  }

  // Touches weights, scratch memory and kernels once.
  void warm_up(const Sequences& base) {
    Sequences scratch = fork(base);
    scratch.erase(scratch.begin() + 1, scratch.end());
    const auto chunk = std::min(plan_.prefill, config_.step_tokens);
    const engine::SequenceShare share{scratch[0].get(), next(*scratch[0], chunk), 1, {}};
    forward(std::span(&share, 1), 1);
    decode_step(scratch, false);
  }

  // Quest tells its prompt from what follows, so there the measured prompt needs a state in which
  // it still belongs to the prompt.
  Sequences measure_prefill(const Sequences& base) {
    Sequences own;
    if (config_.cache.rule == kvcache::RuleKind::quest && plan_.prefill_depth() > 0) {
      own = open(plan_.prefill_depth() + plan_.prefill);
      prefill(own, plan_.prefill_depth(), "fill");
    }
    Sequences prefilled;
    for (int i = 0; i < plan_.repeat; ++i) {
      prefilled = fork(own.empty() ? base : own);
      result_.prefill_tokens_per_s.push_back(prefill(prefilled, plan_.prefill, "prefill"));
    }
    return prefilled;
  }

  void note_cache(const Sequences& base) {
    std::int64_t dense_entries = 0;
    for (const auto& sequence : base) {
      const engine::CacheUsage usage = sequence->usage();
      result_.kv_bytes += usage.bytes;
      result_.dense_bytes += usage.dense_bytes;
      result_.live_entries += usage.live_entries;
      dense_entries += std::int64_t{usage.tokens} * model_.layers * model_.kv_heads;
    }
    result_.compression_ratio =
        result_.live_entries == 0
            ? 1.0
            : static_cast<double>(dense_entries) / static_cast<double>(result_.live_entries);
  }

  void measure_decode(const Sequences& base) {
    std::int64_t seen = 0;
    ProgressBar progress("decode", std::int64_t{plan_.repeat} * plan_.generate, "steps");
    for (int i = 0; i < plan_.repeat; ++i) {
      Sequences sequences = fork(base);
      seen += decode_step(sequences, true);  // copies the shared end of the window
      const auto start = std::chrono::steady_clock::now();
      for (int step = 1; step <= plan_.generate; ++step) {
        decode_step(sequences, false);
        progress.update(std::int64_t{i} * plan_.generate + step);
      }
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      result_.decode_tokens_per_s.push_back(static_cast<double>(plan_.generate) * plan_.batch /
                                            elapsed.count());
      seen += decode_step(sequences, true);
    }
    const std::size_t entry = ops::PageLayout(config_.cache.format, model_.head_dim).entry_bytes();
    result_.entry_bytes_per_step =
        static_cast<std::size_t>(seen) / (2 * static_cast<std::size_t>(plan_.repeat)) * entry;
  }

  const ModelConfig& model_;
  const engine::EngineConfig& config_;
  BenchPlan plan_;
  int longest_ = 0;
  std::unique_ptr<engine::Runner> runner_;
  std::vector<std::int32_t> best_;
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

}  // namespace winnow::cli
