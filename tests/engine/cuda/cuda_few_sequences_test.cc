// A few sequences in one step on a CUDA device, compared with single sequences and other kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "api/llm_session.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/cuda_backend_testing.h"

namespace winnow::engine::testing {
namespace {

// Compares a sequence alone with the same next to a short one. Warps have one page, some, or more
// than they look up at once. If lengths differ too much, the two do not share a kernel.
TEST_F(CudaBackend, ComputesOneSequenceAsItComputesTwo) {
  for (const auto format : {ops::EntryFormat::bf16, ops::EntryFormat::f8e4m3}) {
    const Case c = plain_case("long", "llama", kvcache::RuleKind::dense, format);
    model::ModelSpec config = config_of(c);
    config.max_positions = 80000;
    const model::Model model(config, weights_of(config));
    EngineConfig options = engine_config(c, true);
    options.cache.max_bytes = std::size_t{1} << 30;
    const auto backend = make_backend(model, options);
    for (const std::size_t length : {2000U, 9000U, 70000U}) {
      const auto runner = backend->make_runner(options);
      const auto tokens = random_tokens(static_cast<int>(length) + 4, config.vocab);
      const auto vocab = static_cast<std::size_t>(config.vocab);
      std::vector<std::unique_ptr<SequenceState>> sequences;
      const auto share_of = [&](std::size_t sequence, std::size_t count) {
        SequenceShare share;
        share.sequence = sequences[sequence].get();
        const auto first = static_cast<std::size_t>(sequences[sequence]->length());
        share.tokens = std::span(tokens).subspan(first, count);
        return share;
      };
      for (const std::size_t prompt : {length, length, std::size_t{20}}) {
        sequences.push_back(runner->open({static_cast<int>(prompt), static_cast<int>(length) + 4}));
        const SequenceShare share = share_of(sequences.size() - 1, prompt);
        runner->forward(std::span(&share, 1), {}, {});
      }
      for (int step = 0; step < 3; ++step) {
        std::vector<float> alone(vocab);
        std::vector<float> beside(2 * vocab);
        std::vector<std::int32_t> next(2);
        const SequenceShare one = share_of(0, 1);
        const std::vector<SequenceShare> two{share_of(1, 1), share_of(2, 1)};
        runner->forward(std::span(&one, 1), {alone.data(), 1, vocab}, std::span(next).first(1));
        runner->forward(two, {beside.data(), 2, vocab}, next);
        EXPECT_LE(relative_error(alone, std::span(beside).first(vocab)), 2e-2)
            << length << " tokens, step " << step;
      }
      EXPECT_EQ(sequences[0]->usage().per_head, sequences[1]->usage().per_head);
    }
  }
}

// Without logits, a step of a few sequences ends inside the kernel that computes it; with logits,
// in a kernel of its own. Both must report the same to the host.
struct Told {
  std::unique_ptr<Runner> runner;
  std::vector<std::unique_ptr<SequenceState>> sequences;

  // Takes the next `count` tokens of each sequence.
  std::vector<std::int32_t> step(std::span<const std::int32_t> tokens, std::size_t count,
                                 ops::Matrix<float> logits) const {
    std::vector<SequenceShare> shares;
    for (const auto& sequence : sequences) {
      shares.emplace_back().sequence = sequence.get();
      shares.back().tokens = tokens.subspan(static_cast<std::size_t>(sequence->length()), count);
    }
    std::vector<std::int32_t> next(sequences.size(), -1);
    runner->forward(shares, logits, next);
    return next;
  }
  // The number that the last step has reported.
  [[nodiscard]] std::size_t free_pages() const {
    std::size_t low = 0;
    std::size_t high = std::size_t{1} << 28;
    while (low < high) {
      const std::size_t middle = (low + high + 1) / 2;
      runner->has_room({.archive = middle}) ? low = middle : high = middle - 1;
    }
    return low;
  }
};

// `count` sequences that have read the first `longest`, `longest` - `less`, ... tokens.
Told opened(const Backend& backend, const EngineConfig& options,
            std::span<const std::int32_t> tokens, std::size_t count, std::size_t longest,
            std::size_t less) {
  Told told{backend.make_runner(options), {}};
  for (std::size_t i = 0; i < count; ++i) {
    told.sequences.push_back(told.runner->open({200, 400}));
    SequenceShare share;
    share.sequence = told.sequences.back().get();
    share.tokens = tokens.first(longest - less * i);
    told.runner->forward(std::span(&share, 1), {}, {});
  }
  return told;
}

TEST_F(CudaBackend, AStepInOneKernelTellsTheHostWhatOthersDo) {
  for (const auto rule : {kvcache::RuleKind::dms, kvcache::RuleKind::dense}) {
    const Case c = plain_case("told", "llama", rule, ops::EntryFormat::f8e4m3);
    const model::ModelSpec config = config_of(c);
    model::Model model(config, weights_of(config));
    model.draw_decisions({.rate = 0.7});
    const EngineConfig options = engine_config(c, true);
    const auto backend = make_backend(model, options);
    const auto tokens = random_tokens(400, config.vocab);
    const auto vocab = static_cast<std::size_t>(config.vocab);
    for (const std::size_t count : {1U, 3U, 8U}) {
      const Told greedy = opened(*backend, options, tokens, count, 150, 17);
      const Told sampled = opened(*backend, options, tokens, count, 150, 17);
      std::vector<float> logits(count * vocab);
      std::size_t most_needed = 0;
      for (int step = 0; step < 250; ++step) {
        EXPECT_EQ(greedy.step(tokens, 1, {}),
                  sampled.step(tokens, 1, {logits.data(), count, vocab}))
            << step;
        ASSERT_EQ(greedy.free_pages(), sampled.free_pages()) << step;
        for (std::size_t i = 0; i < count; ++i) {
          const std::size_t need = greedy.runner->need(*greedy.sequences[i], 1).archive;
          ASSERT_EQ(need, sampled.runner->need(*sampled.sequences[i], 1).archive) << step;
          most_needed = std::max(most_needed, need);
        }
      }
      EXPECT_GT(most_needed, 0U);
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(greedy.sequences[i]->usage().per_head, sampled.sequences[i]->usage().per_head);
      }
      EXPECT_EQ(greedy.runner->page_bytes(), sampled.runner->page_bytes());
    }
  }
}

// Runs `count` sequences, of different lengths and with different entries kept, together and alone:
// entries must be equal, logits within `tolerance`.
void compare_together_and_alone(const Backend& backend, const EngineConfig& options,
                                const model::ModelSpec& config, std::size_t count,
                                double tolerance) {
  const auto tokens = random_tokens(400, config.vocab);
  const auto vocab = static_cast<std::size_t>(config.vocab);
  const Told together = opened(backend, options, tokens, count, 3 + 19 * (count - 1), 19);
  const Told alone = opened(backend, options, tokens, count, 3 + 19 * (count - 1), 19);
  for (int step = 0; step < 40; ++step) {
    std::vector<float> got(count * vocab, NAN);
    together.step(tokens, 1, {got.data(), count, vocab});
    std::vector<float> expected(count * vocab);
    for (std::size_t i = 0; i < count; ++i) {
      SequenceShare share;
      share.sequence = alone.sequences[i].get();
      share.tokens =
          std::span(tokens).subspan(static_cast<std::size_t>(share.sequence->length()), 1);
      alone.runner->forward(std::span(&share, 1), {expected.data() + i * vocab, 1, vocab}, {});
    }
    ASSERT_LE(relative_error(got, expected), tolerance) << count << " sequences, step " << step;
  }
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(together.sequences[i]->usage().per_head, alone.sequences[i]->usage().per_head);
  }
  EXPECT_EQ(together.runner->page_bytes(), alone.runner->page_bytes());
}

class CudaFewSequences : public OnDevice<::testing::TestWithParam<Case>> {};
INSTANTIATE_TEST_SUITE_P(Models, CudaFewSequences, ::testing::ValuesIn(kCases), case_name);

// Windows wrap around, and pages fill up, under every rule.
TEST_P(CudaFewSequences, DecodesEachAsByItself) {
  const Case& c = GetParam();
  const model::ModelSpec config = config_of(c);
  model::Model model(config, weights_of(config));
  model.draw_decisions({.rate = 0.7});
  EngineConfig options = engine_config(c, true);
  options.cache.max_bytes *= 2;
  const auto backend = make_backend(model, options);
  for (const std::size_t count : {2U, 3U, 5U, 8U, 11U}) {
    compare_together_and_alone(*backend, options, config, count, c.tolerance);
  }
}

// So many KV heads that a row of eight sequences has two blocks left, or one: attention's output is
// several chunks of o's input.
TEST_F(CudaBackend, DecodesAFewSequencesOfManyHeads) {
  for (const auto format : {ops::EntryFormat::bf16, ops::EntryFormat::f8e4m3}) {
    for (const int kv_heads : {8, 16}) {
      const Case c = plain_case("heads", "llama", kvcache::RuleKind::dms, format);
      const model::ModelSpec config = config_of(c, kv_heads);
      model::Model model(config, weights_of(config));
      model.draw_decisions({.rate = 0.7});
      EngineConfig options = engine_config(c, true);
      options.cache.max_bytes *= 4;
      const auto backend = make_backend(model, options);
      for (const std::size_t count : {2U, 8U}) {
        compare_together_and_alone(*backend, options, config, count,
                                   format == ops::EntryFormat::bf16 ? 2e-2 : 1e-1);
      }
    }
  }
}

// Few rows are computed in the same way in any company (except one row of int4): short chunks of
// several sequences, with logits of some rows, equal each chunk alone to the last bit.
TEST_F(CudaBackend, ReadsShortChunksTogetherAsOneByOne) {
  const Case c = plain_case("short", "qwen3", kvcache::RuleKind::dms, ops::EntryFormat::f8e4m3);
  const model::ModelSpec config = config_of(c);
  model::Model model(config, weights_of(config));
  model.draw_decisions({.rate = 0.7});
  const EngineConfig options = engine_config(c, true);
  const auto backend = make_backend(model, options);
  const auto tokens = random_tokens(200, config.vocab);
  const auto vocab = static_cast<std::size_t>(config.vocab);
  const auto run = [&](bool together) {
    const auto runner = backend->make_runner(options);
    std::vector<std::unique_ptr<SequenceState>> sequences;
    std::vector<float> logits;
    const auto forward = [&](std::span<const SequenceShare> shares) {
      std::size_t rows = 0;
      for (const SequenceShare& share : shares) {
        rows += share.logit_rows;
      }
      const std::size_t before = logits.size();
      logits.resize(before + rows * vocab, NAN);
      runner->forward(shares, {logits.data() + before, rows, vocab}, {});
    };
    const std::size_t prompts[] = {90, 7, 60};
    const std::size_t chunks[] = {5, 2, 9};
    const std::size_t rows[] = {1, 2, 4};
    std::vector<SequenceShare> shares(3);
    for (std::size_t i = 0; i < 3; ++i) {
      sequences.push_back(runner->open({120, 200}));
      shares[i].sequence = sequences[i].get();
      shares[i].tokens = std::span(tokens).first(prompts[i]);
      forward(std::span(shares).subspan(i, 1));
      shares[i].tokens = std::span(tokens).subspan(prompts[i], chunks[i]);
      shares[i].logit_rows = rows[i];
    }
    if (together) {
      forward(shares);
    } else {
      for (const SequenceShare& share : shares) {
        forward(std::span(&share, 1));
      }
    }
    return logits;
  };
  const std::vector<float> together = run(true);
  EXPECT_TRUE(std::ranges::all_of(together, [](float x) { return std::isfinite(x); }));
  EXPECT_EQ(together, run(false));
}

}  // namespace
}  // namespace winnow::engine::testing
