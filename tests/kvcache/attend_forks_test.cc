// Forks of one sequence that continue at the same time on several threads: each copies the pages
// that it still shares while the others copy and write theirs.
#include <gtest/gtest.h>

#include <tuple>

#include "base/threads.h"
#include "kvcache/any_calibration.h"
#include "kvcache/cache_world.h"
#include "kvcache/every_rule.h"

namespace winnow::testing {
namespace {

using kvcache::RuleKind;
using kvcache::SequenceCache;

constexpr int kPrompt = 45;  // so that the last pages are not full
constexpr int kForks = 20;
constexpr int kSteps = 24;

// Appends `rows` tokens to each sequence in one call and adds the outputs to `answers`. Sequence i
// gets the tokens of name i.
void append(ops::Context& context, const TokenSource& source, std::span<SequenceCache> sequences,
            int rows, std::vector<float>& answers) {
  const kvcache::CacheShape& shape = sequences.front().cache().shape();
  std::vector<ChunkBuffers> buffers;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    std::vector<LayerToken> tokens;
    for (int t = 0; t < rows; ++t) {
      tokens.push_back(source.token(i, 0, sequences[i].length() + t));
    }
    buffers.emplace_back(shape, tokens);
  }
  std::vector<kvcache::LayerChunk> chunks;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    chunks.push_back(buffers[i].chunk(sequences[i]));
  }
  kvcache::append_and_attend(context, 0, chunks);
  for (const ChunkBuffers& buffer : buffers) {
    for (int t = 0; t < rows; ++t) {
      const auto out = buffer.out(static_cast<std::size_t>(t));
      answers.insert(answers.end(), out.begin(), out.end());
    }
  }
}

// The outputs of a prompt, of its forks, and of their forks.
std::vector<float> answers_with(int threads, RuleKind rule, ops::EntryFormat format) {
  set_threads(threads);
  kvcache::CacheConfig config;
  config.rule = rule;
  config.format = format;
  config.window = 20;
  config.shift = 3;
  config.cr = 3;
  config.max_bytes = std::size_t{1} << 27;
  const kvcache::CacheShape shape{.layers = 1, .kv_heads = 2, .head_dim = 24, .group = 3};
  kvcache::Cache cache(config, calibrated(shape));
  ops::Workspace workspace;
  ops::Context context{DType::f32, false, &workspace};
  const TokenSource source(shape, 0.4);
  std::vector<float> answers;
  std::vector<SequenceCache> sequences;
  sequences.emplace_back(cache, kvcache::SequenceLimits{kPrompt, 120});
  append(context, source, sequences, kPrompt, answers);
  while (sequences.size() < kForks) {
    sequences.push_back(sequences.front().fork());
  }
  for (int step = 1; step <= kSteps; ++step) {
    append(context, source, sequences, 1, answers);
    if (step % 6 == 0) {  // half of the sequences restart as forks of another
      for (std::size_t i = 0; i < kForks / 2; ++i) {
        sequences[i] = sequences[kForks - 1 - i].fork();
      }
    }
  }
  sequences.clear();
  EXPECT_EQ(cache.page_bytes(), 0U);
  return answers;
}

class Forks : public ::testing::TestWithParam<std::tuple<RuleKind, ops::EntryFormat>> {};

TEST_P(Forks, GoOnTogetherOnSeveralThreads) {
  const auto [rule, format] = GetParam();
  const auto alone = answers_with(1, rule, format);
  for (int round = 0; round < 5; ++round) {
    const auto together = answers_with(4, rule, format);
    ASSERT_EQ(alone.size(), together.size());
    ASSERT_EQ(std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, Forks,
                         ::testing::Combine(::testing::ValuesIn(every_rule()),
                                            ::testing::Values(ops::EntryFormat::bf16,
                                                              ops::EntryFormat::f32)),
                         [](const auto& info) {
                           return std::string(kvcache::rule_name(std::get<0>(info.param))) + '_' +
                                  std::string(ops::format_name(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace winnow::testing
