// However sequences are cut into chunks, interleaved, forked, preempted and freed, attention gives
// the outputs of the rules' definitions, and no page is lost.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <optional>

#include "base/threads.h"
#include "kvcache/any_calibration.h"
#include "kvcache/cache_world.h"
#include "kvcache/every_rule.h"
#include "kvcache/property.h"

namespace winnow::testing {
namespace {

using kvcache::LayerChunk;
using kvcache::PageNeed;
using kvcache::RuleKind;
using kvcache::SequenceLimits;

// A decision by a smaller relative difference of attention weights may go either way.
constexpr double kSafeMargin = 1e-4;
constexpr double kTolerance = 2e-5;         // of outputs with values of about 1, computed in float
constexpr std::size_t kMostSequences = 12;  // so that a call has work for two threads

/// One random operation; `choice` determines its details.
struct Operation {
  int kind = 0;
  std::uint64_t choice = 0;

  friend std::ostream& operator<<(std::ostream& out, const Operation& operation) {
    return out << operation.kind << ':' << operation.choice;
  }
};

class World {
 public:
  explicit World(const WorldConfig& config)
      : config_(config),
        cache_(config.cache, calibrated(config.shape)),
        source_(config.shape, config.rate),
        context_{DType::f32, config.deterministic, &workspace_} {}

  void apply(const Operation& operation) {
    Random random(operation.choice);
    if (sequences_.empty() || operation.kind == 0) {
      start(random);
    } else if (operation.kind == 1) {
      fork(random);
    } else if (operation.kind == 2) {
      sequences_.erase(sequences_.begin() + pick(random));
    } else if (operation.kind == 3) {
      sequences_[static_cast<std::size_t>(pick(random))]->preempt();
    } else {
      append(random);
    }
    check_accounts();
  }

  void finish() {
    sequences_.clear();
    RC_ASSERT(cache_.archive_pool().live_pages() == 0U);
    RC_ASSERT(cache_.window_pool().live_pages() == 0U);
    RC_ASSERT(cache_.page_bytes() == 0U);
  }

 private:
  struct Part {
    TestedSequence* sequence;
    int rows;
    int first;  // position of the first row
  };

  static int below(Random& random, int bound) { return static_cast<int>(random.uniform() * bound); }
  std::ptrdiff_t pick(Random& random) const {
    return below(random, static_cast<int>(sequences_.size()));
  }

  void start(Random& random) {
    if (sequences_.size() == kMostSequences) {
      return;
    }
    const int prompt = 1 + below(random, 120);
    const SequenceLimits limits{prompt, prompt + below(random, 120)};
    sequences_.push_back(std::make_unique<TestedSequence>(cache_, limits, ++names_));
  }

  void fork(Random& random) {
    if (sequences_.size() < kMostSequences) {
      const auto& original = sequences_[static_cast<std::size_t>(pick(random))];
      sequences_.push_back(original->fork(++names_));
    }
  }

  // One call with chunks of some of the sequences. Like the engine, only if enough pages are free.
  void append(Random& random) {
    std::vector<Part> parts;
    PageNeed need;
    for (const auto& sequence : sequences_) {
      if (random.uniform() < 0.6) {
        const int most = random.uniform() < 0.3 ? 1 : random.uniform() < 0.7 ? 20 : 150;
        const int rows = 1 + below(random, most);
        PageNeed with = need;
        with += sequence->cache().page_need(rows);
        if (cache_.has_pages(with)) {
          parts.push_back({sequence.get(), rows, sequence->cache().length()});
          need = with;
        }
      }
    }
    if (!parts.empty()) {
      take(parts, need);
    }
  }

  void take(const std::vector<Part>& parts, const PageNeed& need) {
    const PageCount before = live();
    const std::size_t peak_before = cache_.archive_pool().peak_pages();
    for (int layer = 0; layer < config_.shape.layers; ++layer) {
      std::vector<ChunkBuffers> buffers;
      for (const Part& part : parts) {
        buffers.emplace_back(config_.shape, part.sequence->next(source_, layer, part.rows));
      }
      std::vector<LayerChunk> chunks;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        chunks.push_back(buffers[i].chunk(parts[i].sequence->cache()));
      }
      kvcache::append_and_attend(context_, layer, chunks);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        check_answers(parts[i], layer, buffers[i]);
      }
    }
    const PageCount after = live();
    if (separate_windows()) {
      RC_ASSERT(after.archive <= before.archive + need.archive);
      RC_ASSERT(after.window <= before.window + need.window);
      RC_ASSERT(cache_.archive_pool().peak_pages() <=
                std::max(peak_before, before.archive + need.archive));
    } else {
      const std::size_t most = before.archive + before.window + need.archive + need.window;
      RC_ASSERT(after.archive + after.window <= most);
      RC_ASSERT(cache_.archive_pool().peak_pages() <= std::max(peak_before, most));
    }
  }

  void check_answers(const Part& part, int layer, const ChunkBuffers& buffers) const {
    if (part.sequence->margin() < kSafeMargin) {
      return;
    }
    for (int t = 0; t < part.rows; ++t) {
      const LayerAnswer& answer = part.sequence->answer(layer, part.first + t);
      const auto out = buffers.out(static_cast<std::size_t>(t));
      const auto visible = buffers.visible(static_cast<std::size_t>(t));
      RC_ASSERT(std::vector<int>(visible.begin(), visible.end()) == answer.visible);
      for (std::size_t d = 0; d < out.size(); ++d) {
        RC_ASSERT(std::abs(out[d] - answer.out[d]) <= kTolerance);  // false for NaN
      }
    }
    const LayerAnswer& last = part.sequence->answer(layer, part.first + part.rows - 1);
    for (int h = 0; h < config_.shape.kv_heads; ++h) {
      const auto& head = part.sequence->cache().head(layer, h);
      RC_ASSERT(head.live_entries() == last.live[static_cast<std::size_t>(h)]);
      RC_ASSERT(head.length() == part.first + part.rows);
    }
  }

  [[nodiscard]] bool separate_windows() { return &cache_.archive_pool() != &cache_.window_pool(); }
  [[nodiscard]] PageCount live() const {
    std::vector<const kvcache::SequenceCache*> all;
    for (const auto& sequence : sequences_) {
      all.push_back(&sequence->cache());
    }
    return count_pages(cache_, all);
  }

  // Checks that the pools' pages and bytes match what the sequences hold, page by page.
  void check_accounts() {
    const PageCount count = live();
    const auto bytes = [](const kvcache::PagePool& pool, std::size_t pages) {
      return pages * (pool.layout().page_bytes() + sizeof(std::uint32_t));
    };
    if (separate_windows()) {
      RC_ASSERT(cache_.archive_pool().live_pages() == count.archive);
      RC_ASSERT(cache_.window_pool().live_pages() == count.window);
    } else {
      RC_ASSERT(cache_.archive_pool().live_pages() == count.archive + count.window);
    }
    RC_ASSERT(cache_.page_bytes() == bytes(cache_.archive_pool(), count.archive) +
                                         bytes(cache_.window_pool(), count.window));
    RC_ASSERT(cache_.archive_pool().live_pages() <= cache_.archive_pool().capacity());
  }

  WorldConfig config_;
  kvcache::Cache cache_;
  TokenSource source_;
  ops::Workspace workspace_;
  ops::Context context_;
  std::vector<std::unique_ptr<TestedSequence>> sequences_;
  std::uint64_t names_ = 0;
};

WorldConfig any_world(RuleKind rule) {
  WorldConfig config;
  config.cache.rule = rule;
  config.cache.format = *rc::gen::elementOf(
      std::vector(std::begin(ops::kEntryFormats), std::end(ops::kEntryFormats)));
  config.cache.window = *rc::gen::inRange(0, 41);
  config.cache.shift =
      *rc::gen::oneOf(rc::gen::inRange(0, 2), rc::gen::inRange(0, config.cache.window + 2));
  config.cache.cr = *rc::gen::element(1.0, 1.5, 2.0, 4.0, 12.0, 1000.0);
  config.cache.sinks = *rc::gen::inRange(0, 6);
  config.shape = {.layers = *rc::gen::inRange(1, 3),
                  .kv_heads = *rc::gen::inRange(1, 4),
                  .head_dim = 8 * *rc::gen::inRange(1, 9),
                  .group = *rc::gen::inRange(1, 5)};
  config.shape.reach = any_reach(config.shape.layers);
  config.shape.ropes = any_ropes(config.shape.layers, config.shape.head_dim);
  config.shape.chunked = *rc::gen::arbitrary<bool>();
  config.shape.joint = *rc::gen::arbitrary<bool>();
  config.shape.key_only = config.shape.joint ? *rc::gen::inRange(0, config.shape.head_dim) : 0;
  config.rate = *rc::gen::element(0.0, 0.3, 0.5, 0.9, 1.0);
  config.deterministic = *rc::gen::arbitrary<bool>();
  const std::size_t page = config.shape.page_layout(config.cache.format).page_bytes();
  const auto pages = *rc::gen::element(std::size_t{60}, std::size_t{100000});
  config.cache.max_bytes = std::max(page, std::size_t{8192}) * pages;
  return config;
}

rc::Gen<std::vector<Operation>> any_operations() {
  // Most operations append.
  return rc::gen::container<std::vector<Operation>>(rc::gen::construct<Operation>(
      rc::gen::element(0, 0, 1, 2, 3, 4, 4, 4, 4, 4), rc::gen::inRange<std::uint64_t>(0, 1000000)));
}

void show(const WorldConfig& config) {
  RC_LOG() << kvcache::rule_name(config.cache.rule) << ' ' << ops::format_name(config.cache.format)
           << " window " << config.cache.window << " shift " << config.cache.shift << " cr "
           << config.cache.cr << " sinks " << config.cache.sinks << " layers "
           << config.shape.layers << " heads " << config.shape.kv_heads << " x "
           << config.shape.group << " dim " << config.shape.head_dim << " reach ["
           << fmt::format("{}", fmt::join(config.shape.reach, " "))
           << (config.shape.chunked ? "] chunked" : "]")
           << (config.shape.joint ? " joint rate " : " rate ") << config.rate
           << (config.deterministic ? " deterministic" : "") << " bytes " << config.cache.max_bytes
           << '\n';
}

class EveryRule : public ::testing::TestWithParam<RuleKind> {
 protected:
  void SetUp() override { set_threads(2); }
};
INSTANTIATE_TEST_SUITE_P(Rules, EveryRule, ::testing::ValuesIn(every_rule()), name_of_rule);

TEST_P(EveryRule, AnswersAsDefinedHoweverSequencesAreRun) {
  EXPECT_TRUE(holds("answers as defined", GetParam() == RuleKind::dms ? 60 : 30, [] {
    const WorldConfig config = any_world(GetParam());
    const auto operations = *rc::gen::resize(40, any_operations());
    show(config);
    World world(config);
    for (const Operation& operation : operations) {
      world.apply(operation);
    }
    world.finish();
  }));
}

// All outputs of one sequence, cut by `random` (null: not cut) and run with `company` others.
std::vector<float> run_cut(const WorldConfig& config, int length, Random* random, int company) {
  ops::Workspace workspace;
  ops::Context context{DType::f32, true, &workspace};
  kvcache::Cache cache(config.cache, calibrated(config.shape));
  const TokenSource source(config.shape, config.rate);
  const SequenceLimits limits{length / 2, length};
  std::vector<TestedSequence> sequences;
  for (int i = 0; i <= company; ++i) {
    sequences.emplace_back(cache, limits, static_cast<std::uint64_t>(i + 1));
  }
  std::vector<float> answers;
  while (sequences.front().cache().length() < length) {
    const int left = length - sequences.front().cache().length();
    const int rows = random == nullptr ? left : 1 + static_cast<int>(random->uniform() * left);
    std::vector<ChunkBuffers> buffers;
    for (TestedSequence& sequence : sequences) {
      const bool first = &sequence == &sequences.front();
      buffers.emplace_back(config.shape, sequence.next(source, 0, first ? rows : 1));
    }
    std::vector<LayerChunk> chunks;
    for (std::size_t i = buffers.size(); i-- > 0;) {
      chunks.push_back(buffers[i].chunk(sequences[i].cache()));
    }
    kvcache::append_and_attend(context, 0, chunks);
    for (int t = 0; t < rows; ++t) {
      const auto out = buffers.front().out(static_cast<std::size_t>(t));
      answers.insert(answers.end(), out.begin(), out.end());
    }
  }
  return answers;
}

TEST_P(EveryRule, DeterministicToTheLastBit) {
  EXPECT_TRUE(holds("not a bit depends on cutting or company", 20, [] {
    WorldConfig config = any_world(GetParam());
    config.shape.layers = 1;
    config.shape.reach = any_reach(1);
    config.shape.ropes = any_ropes(1, config.shape.head_dim);
    config.cache.max_bytes = std::size_t{1} << 28;
    show(config);
    const int length = *rc::gen::inRange(2, 90);
    Random random(*rc::gen::inRange<std::uint64_t>(0, 1000));
    const auto whole = run_cut(config, length, nullptr, 0);
    const auto cut = run_cut(config, length, &random, *rc::gen::inRange(0, 12));
    RC_ASSERT(whole.size() == cut.size());
    RC_ASSERT(std::memcmp(whole.data(), cut.data(), whole.size() * sizeof(float)) == 0);
  }));
}

}  // namespace
}  // namespace winnow::testing
