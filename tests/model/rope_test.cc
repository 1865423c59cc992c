// RoPE compared with transformers' for the same config.json (tests/fixtures/rope.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "model/config.h"

namespace winnow::model {
namespace {

using nlohmann::json;

void expect_rope(const json& expected, const RopeSpec& rope) {
  const auto frequencies = expected["frequencies"].get<std::vector<float>>();
  ASSERT_EQ(rope.frequencies.size(), frequencies.size());
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    EXPECT_NEAR(rope.frequencies[i], frequencies[i], 1e-6F * frequencies[i]) << i;
  }
  const auto factor = expected["attention_factor"].get<float>();
  EXPECT_NEAR(rope.attention_factor, factor, 1e-6F * factor);
}

TEST(Rope, IsThatOfTransformers) {
  const json cases =
      json::parse(std::ifstream(std::string(WINNOW_SOURCE_DIR) + "/tests/fixtures/rope.json"));
  ASSERT_GE(cases.size(), 45U);
  for (const json& item : cases) {
    SCOPED_TRACE(item["config"].dump());
    const ModelSpec spec = parse_spec(item["config"].dump());
    const json& ropes = item["ropes"];
    // A full layer: the last of eight in one family, the sixth in the others.
    const int full = spec.family == "olmo3" ? 7 : 5;
    expect_rope(ropes.value("full_attention", ropes.value("all", json())),
                *spec.layer(full).attention()->rope);
    expect_rope(ropes.value("sliding_attention", ropes.value("all", json())),
                *spec.layer(0).attention()->rope);
  }
}

}  // namespace
}  // namespace winnow::model
