// The demo checkpoints against logits from transformers (base) and PyTorch (student).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "model/fixture.h"

namespace winnow {
namespace {

using testing::Outcome;
using testing::Runner;

std::filesystem::path assets() {
  return std::filesystem::path(WINNOW_SOURCE_DIR) / "assets";
}

nlohmann::json reference() {
  return nlohmann::json::parse(std::ifstream(assets() / "demo_reference.json"));
}

// Compares logits at the positions that the reference has.
void expect_logits(const nlohmann::json& expected, const Outcome& outcome, std::size_t vocab) {
  for (const auto& [position, row] : expected.items()) {
    const auto ids = row.at("ids").get<std::vector<std::size_t>>();
    const auto logits = row.at("logits").get<std::vector<float>>();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const float actual = outcome.logits[std::stoul(position) * vocab + ids[i]];
      EXPECT_NEAR(actual, logits[i], 2e-3F) << "position " << position << ", token " << ids[i];
    }
  }
}

// Feeds the prompt and the reference's own continuation, in chunks of 512.
void expect_as_reference(const std::string& model_name, const std::string& key) {
  const nlohmann::json all = reference();
  const nlohmann::json& expected = all.at(key);
  auto tokens = all.at("prompt_ids").get<std::vector<std::int32_t>>();
  const std::size_t prompt = tokens.size();
  const auto greedy = expected.at("greedy_ids").get<std::vector<std::int32_t>>();
  tokens.insert(tokens.end(), greedy.begin(), greedy.end() - 1);

  const model::Checkpoint checkpoint = model::Checkpoint::open(assets() / model_name);
  const model::Model model(checkpoint.spec(), model::load_weights(checkpoint));
  kvcache::Cache cache(testing::trained_cache(checkpoint.spec()), model.cache_shape());
  Outcome outcome;
  Runner runner(model, cache, {});
  runner.feed_in_chunks(tokens, 512, outcome);

  const auto vocab = static_cast<std::size_t>(checkpoint.spec().vocab);
  expect_logits(expected.at("next_token_logits"), outcome, vocab);
  for (std::size_t i = 0; i < greedy.size(); ++i) {
    const auto row = std::span(outcome.logits).subspan((prompt - 1 + i) * vocab, vocab);
    EXPECT_EQ(std::ranges::max_element(row) - row.begin(), greedy[i]) << "new token " << i;
  }
  if (expected.contains("live_entries_after_prompt")) {
    const auto live = expected.at("live_entries_after_prompt").get<std::vector<std::vector<int>>>();
    const std::size_t heads = live.size() * live.front().size();
    for (std::size_t h = 0; h < heads; ++h) {
      EXPECT_EQ(outcome.live_entries[(prompt - 1) * heads + h],
                live[h / live.front().size()][h % live.front().size()])
          << "layer and head " << h;
    }
  }
}

TEST(DemoModel, BaseAsInTransformers) {
  expect_as_reference("base", "base");
}

TEST(DemoModel, StudentAsInPyTorch) {
  expect_as_reference("dms-cr8", "student");
}

}  // namespace
}  // namespace winnow
