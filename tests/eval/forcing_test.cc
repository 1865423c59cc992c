// Many sequences at once give the same logits as each one alone.
#include "eval/forcing.h"

#include <gtest/gtest.h>

#include "api/llm_session.h"
#include "model/fixture.h"

namespace winnow::eval {
namespace {

std::unique_ptr<const engine::LoadedModel> load_in_chunks(int chunk) {
  LoadOptions options;
  options.model = (testing::fixture_models() / "dms-nvidia-llama").string();
  options.dtype = "fp32";
  options.threads = 1;
  options.chunk = chunk;
  options.deterministic = true;
  return engine::load_model(options);
}

std::vector<std::int32_t> some_tokens(std::size_t count, std::size_t seed) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<std::int32_t>((i * i * 7 + seed * i + 1) % 120));
  }
  return tokens;
}

// The logits of one sequence alone, [tokens, vocab].
std::vector<float> logits_alone(const engine::LoadedModel& model,
                                const std::vector<std::int32_t>& tokens) {
  const int length = static_cast<int>(tokens.size());
  engine::Session session(*model.backend, model.engine, {length, length});
  std::vector<float> logits(tokens.size() * static_cast<std::size_t>(model.model.spec().vocab));
  session.feed(tokens, logits);
  return logits;
}

void expect_row(const engine::LoadedModel& model, const std::vector<std::int32_t>& tokens,
                const ForcedRow& row) {
  const auto all = logits_alone(model, tokens);
  const std::size_t vocab = row.logits.size();
  EXPECT_TRUE(std::ranges::equal(std::span(all).subspan(row.position * vocab, vocab), row.logits))
      << "sequence " << row.sequence << " position " << row.position;
}

TEST(Forcing, GivesEveryRowThatWasAskedFor) {
  for (const int chunk : {1, 7, 512}) {
    const auto model = load_in_chunks(chunk);
    const std::vector<std::vector<std::int32_t>> texts{some_tokens(40, 3), some_tokens(1, 5),
                                                       some_tokens(23, 8)};
    const std::vector<std::size_t> first_rows{35, 0, 0};
    Forcing forcing(*model, 3, 64);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      forcing.open(texts[i], {1, static_cast<int>(texts[i].size())}, first_rows[i]);
    }
    std::vector<std::size_t> next = first_rows;
    for (auto shares = forcing.plan(); !shares.empty(); shares = forcing.plan()) {
      for (const ForcedRow& row : forcing.step(shares)) {
        EXPECT_EQ(row.position, next[row.sequence]++);
        expect_row(*model, texts[row.sequence], row);
      }
    }
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(next[i], texts[i].size());
      EXPECT_EQ(forcing.usage(i).tokens, static_cast<int>(texts[i].size()));
    }
  }
}

TEST(Forcing, ForksGoOnFromWhatTheyShare) {
  const auto model = load_in_chunks(512);
  const auto shared = some_tokens(30, 3);
  Forcing forcing(*model, 3, 64);
  forcing.open(shared, {30, 60}, 30);
  while (!forcing.plan().empty()) {
    EXPECT_TRUE(forcing.step(forcing.plan()).empty());
  }
  std::vector<std::vector<std::int32_t>> texts{shared};
  for (const std::size_t seed : {5U, 9U}) {
    const auto more = some_tokens(12, seed);
    forcing.fork(0, more, 30);
    texts.push_back(shared);
    texts.back().insert(texts.back().end(), more.begin(), more.end());
  }
  forcing.append(0, 17);
  texts[0].push_back(17);
  int rows = 0;
  for (auto shares = forcing.plan(); !shares.empty(); shares = forcing.plan()) {
    for (const ForcedRow& row : forcing.step(shares)) {
      expect_row(*model, texts[row.sequence], row);
      ++rows;
    }
  }
  EXPECT_EQ(rows, 12 + 12 + 1);
}

}  // namespace
}  // namespace winnow::eval
