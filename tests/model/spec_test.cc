// What devices compute of a description.
#include "model/spec.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "model/spec_of.h"

namespace winnow::model {
namespace {

// Nothing of it is left out in silence: fast paths and training refuse what only the general path
// knows.
TEST(Spec, DevicesRunFamiliesThatFastPathsAndTrainingRefuse) {
  const std::set<std::string> trained{"exaone",           "flex_olmo",        "granite_swa",
                                      "granitemoe",       "granitemoeshared", "granitemoe_swa",
                                      "granitemoehybrid", "mellum",           "olmoe"};
  for (const auto& [family, keys] : winnow::testing::further_cousins()) {
    const ModelSpec spec = winnow::testing::spec_of(family, {}, keys);
    EXPECT_EQ(beyond_devices(spec), nullptr) << family;
    EXPECT_EQ(beyond_plain(spec) == nullptr, std::string_view(family) == "exaone") << family;
    EXPECT_EQ(beyond_device_training(spec) == nullptr, trained.contains(family)) << family;
  }
}

// One property at a time of a model that is plain without it.
TEST(Spec, FastPathsAndTrainingRefuseEachPropertyByName) {
  const ModelSpec plain = winnow::testing::spec_of("llama", {});
  ASSERT_EQ(beyond_plain(plain), nullptr);
  const auto expect = [&](const char* what, const auto& change) {
    ModelSpec spec = plain;
    for (LayerSpec& layer : spec.layers) {
      change(spec, layer, std::get<AttentionSpec>(layer.mixer));
    }
    EXPECT_EQ(beyond_devices(spec), nullptr) << what;
    EXPECT_STREQ(beyond_plain(spec), what);
    EXPECT_STREQ(beyond_device_training(spec), what);
  };
  using Layer = LayerSpec;
  using Attention = AttentionSpec;
  expect("parallel layers", [](ModelSpec&, Layer& layer, Attention&) { layer.parallel = true; });
  expect("LayerNorm",
         [](ModelSpec&, Layer& layer, Attention&) { layer.norm.kind = NormSpec::Kind::layer; });
  expect("interleaved RoPE",
         [](ModelSpec&, Layer&, Attention& attention) { attention.rope->interleaved = true; });
  expect("chunked attention", [](ModelSpec&, Layer&, Attention& attention) {
    attention.reach = {Reach::Kind::chunked, 8};
  });
  expect("norms of queries and keys of its own kind", [](ModelSpec&, Layer&, Attention& attention) {
    attention.query_key_norm = AttentionSpec::QueryKeyNorm::own_per_head;
  });
  expect("norms of queries and keys of its own kind", [](ModelSpec&, Layer&, Attention& attention) {
    attention.query_key_norm = AttentionSpec::QueryKeyNorm::per_head;
    attention.norms_after_rope = true;
  });
  expect("normed values",
         [](ModelSpec&, Layer&, Attention& attention) { attention.value_norm = true; });
  expect("normed values",
         [](ModelSpec&, Layer&, Attention& attention) { attention.values_are_keys = true; });
  expect("scaled layers", [](ModelSpec&, Layer& layer, Attention&) { layer.output_scale = true; });
  expect("embeddings for each layer",
         [](ModelSpec& spec, Layer&, Attention&) { spec.layer_embeddings = {.width = 8}; });
  expect("biases of logits", [](ModelSpec& spec, Layer&, Attention&) { spec.head_bias = true; });
}

TEST(Spec, DevicesRunGemma4ButDoNotTrainIt) {
  for (const auto& keys : winnow::testing::gemma4_keys()) {
    const ModelSpec spec = winnow::testing::spec_of(
        "gemma4_text", {.layers = static_cast<int>(keys.at("layer_types").size())}, keys);
    EXPECT_EQ(beyond_devices(spec), nullptr);
    EXPECT_NE(beyond_plain(spec), nullptr);
    EXPECT_NE(beyond_device_training(spec), nullptr);
  }
}

TEST(Spec, DevicesRefuseWhatTheyDoNotCompute) {
  ModelSpec spec = winnow::testing::spec_of("olmo2", {});
  ASSERT_EQ(beyond_devices(spec), nullptr);
  std::get<AttentionSpec>(spec.layers.back().mixer).norms_after_rope = true;
  EXPECT_STREQ(beyond_devices(spec),
               "norms over all heads together that are behind RoPE or LayerNorm");
}

}  // namespace
}  // namespace winnow::model
