// The fates of tokens against the decisions that caused them.
#include "eval/profile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "model/model.h"
#include "model/tiny_model.h"

namespace winnow::eval {
namespace {

constexpr double kRate = 0.6;

std::unique_ptr<const engine::LoadedModel> drawn_model(kvcache::RuleKind rule) {
  const model::ModelSpec config = testing::tiny_model(rule);
  engine::EngineConfig engine;
  engine.cache.rule = rule;
  engine.cache.format = ops::EntryFormat::f32;
  engine.compute = DType::f32;
  engine.step_tokens = 17;
  if (config.dms) {
    engine.cache.window = config.dms->window;
  } else if (!config.dmc) {
    engine.cache.cr = 2.0;
  }
  model::Model model(config, model::random_weights(config, DType::f32, 11));
  model.draw_decisions({.rate = kRate});
  return engine::place_model(std::move(model), engine, 0);
}

// The decision that Model::draw_decisions() draws.
bool decides(int position, int layer, int head) {
  Random random(static_cast<std::uint64_t>(position), static_cast<std::uint64_t>(layer));
  for (int h = 0; h < head; ++h) {
    random.uniform();
  }
  return random.uniform() < kRate;
}

std::vector<std::int32_t> tokens_to_profile(int count) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  for (auto& token : tokens) {
    token %= 64;
  }
  return tokens;
}

TEST(Profile, TellsWhatDmsEvicted) {
  const auto model = drawn_model(kvcache::RuleKind::dms);
  const Profile profile = measure_profile(*model, tokens_to_profile(60));
  ASSERT_EQ(profile.fates.size(), 240U);
  int kept = 0;
  for (int t = 0; t < 60; ++t) {
    for (int head = 0; head < 4; ++head) {
      const Fate fate = profile.fates[static_cast<std::size_t>(t * 4 + head)];
      if (t >= 60 - testing::kTinyWindow - 1) {
        EXPECT_EQ(fate, Fate::pending) << t;
      } else {
        const bool evicted = decides(t + 1, head / 2, head % 2);  // decision shift 1
        EXPECT_EQ(fate, evicted ? Fate::gone : Fate::kept) << t << " " << head;
        kept += evicted ? 0 : 1;
      }
    }
  }
  EXPECT_NEAR(profile.kept_share(0, 60), kept / (54.0 * 4.0), 1e-12);
  EXPECT_TRUE(std::isnan(profile.kept_share(54, 60)));
  EXPECT_EQ(profile.share_of_heads(59), 1.0);
  EXPECT_EQ(std::accumulate(profile.live.begin(), profile.live.end(), 0), kept + 6 * 4);
  EXPECT_NEAR(profile.ratio_at(60), 240.0 / (kept + 24.0), 1e-12);
  EXPECT_EQ(profile.ratio_at(6), 1.0);
}

TEST(Profile, TellsWhatDmcMerged) {
  const auto model = drawn_model(kvcache::RuleKind::dmc);
  const Profile profile = measure_profile(*model, tokens_to_profile(40));
  for (int t = 0; t < 40; ++t) {
    for (int head = 0; head < 4; ++head) {
      const bool merged = t > 0 && decides(t, head / 2, head % 2);
      EXPECT_EQ(profile.fates[static_cast<std::size_t>(t * 4 + head)],
                merged ? Fate::gone : Fate::kept)
          << t << " " << head;
    }
  }
}

TEST(Profile, DoesNotGuessTheOthers) {
  const auto model = drawn_model(kvcache::RuleKind::tova);
  const Profile profile = measure_profile(*model, tokens_to_profile(40));
  EXPECT_TRUE(profile.fates.empty());
  EXPECT_EQ(profile.live, std::vector<std::int32_t>(4, 20));
  EXPECT_THROW(measure_profile(*model, {}), Error);
}

}  // namespace
}  // namespace winnow::eval
