// Which properties of a model devices support.
#include "model/supported.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "checkpoint/checkpoint_testing.h"
#include "model/spec_of.h"

namespace winnow::model {
namespace {

TEST(Supported, DevicesRunAndTrainFamiliesThatFastPathsRefuse) {
  for (const auto& [family, keys] : winnow::testing::further_cousins()) {
    const ModelSpec spec = winnow::testing::spec_of(family, {}, keys);
    EXPECT_EQ(beyond_devices(spec), nullptr) << family;
    EXPECT_EQ(beyond_plain(spec) == nullptr, std::string_view(family) == "exaone") << family;
    EXPECT_EQ(beyond_device_training(spec), nullptr) << family;
  }
}

TEST(Supported, DevicesTrainHybrids) {
  for (const char* family : {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"}) {
    const ModelSpec spec =
        winnow::testing::spec_of(family, {.layers = 4}, winnow::testing::hybrid_keys());
    EXPECT_EQ(beyond_devices(spec), nullptr) << family;
    EXPECT_STREQ(beyond_plain(spec), "recurrent layers") << family;
    EXPECT_EQ(beyond_device_training(spec), nullptr) << family;
  }
}

TEST(Supported, DevicesRunRecurrentLayersOnTheGeneralPath) {
  for (const auto& [family, keys] : winnow::testing::recurrent_cousins()) {
    const ModelSpec spec = winnow::testing::spec_of(family, {}, keys);
    EXPECT_EQ(beyond_devices(spec), nullptr) << family;
    EXPECT_STREQ(beyond_plain(spec), "recurrent layers") << family;
    EXPECT_STREQ(beyond_device_training(spec), "recurrent layers that are no gated delta nets");
  }
}

// A norm whose weight has no name in files would read an empty weight.
TEST(Supported, NormsNeedNames) {
  const auto refused = [](const char* family, auto change) {
    ModelSpec spec = winnow::testing::spec_of(family, {});
    require_supported(spec, "config.json");
    change(spec);
    return error_of([&] { require_supported(spec, "config.json"); });
  };
  const auto message = ::testing::HasSubstr("layer 0 asks for norms whose weights have no name");
  EXPECT_THAT(refused("llama", [](ModelSpec& spec) { spec.names.attention_norm = ""; }), message);
  EXPECT_THAT(refused("llama", [](ModelSpec& spec) { spec.names.mlp_norm = ""; }), message);
  EXPECT_THAT(refused("llama", [](ModelSpec& spec) { spec.layers[0].norm_after = true; }), message);
  EXPECT_THAT(refused("olmo2", [](ModelSpec& spec) { spec.layers[0].norm_before = true; }),
              message);
  EXPECT_THAT(refused("gemma3_text", [](ModelSpec& spec) { spec.names.mlp_post_norm = ""; }),
              message);
}

// Layers with attention and a recurrent mixer in parallel run only on the CPU, without training.
TEST(Supported, MixersSideBySideRunOnTheCpu) {
  const ModelSpec spec = winnow::testing::spec_of("falcon_h1", {}, {{"mamba_n_heads", 4}});
  constexpr const char* kWhat = "recurrent mixers beside attention in one layer";
  EXPECT_STREQ(beyond_devices(spec), kWhat);
  EXPECT_STREQ(beyond_device_training(spec), kWhat);
  EXPECT_STREQ(beyond_training(spec), kWhat);
  EXPECT_STREQ(beyond_plain(spec), "recurrent layers");
  ModelSpec scaled = winnow::testing::spec_of("llama", {});
  EXPECT_EQ(beyond_training(scaled), nullptr);
  scaled.layers.back().feed_forward.gate_multiplier = 2.0F;
  EXPECT_STREQ(beyond_devices(scaled), "multipliers in feed-forward networks");
  EXPECT_STREQ(beyond_training(scaled), "multipliers in feed-forward networks");
}

// So do layers without a feed-forward network.
TEST(Supported, LayersOfAMixerAloneRunOnTheCpu) {
  const ModelSpec spec = winnow::testing::spec_of(
      "nemotron_h", {}, {{"layers_block_type", {"mamba", "mlp", "attention"}}});
  constexpr const char* kWhat = "layers without a feed-forward network";
  EXPECT_STREQ(beyond_devices(spec), kWhat);
  EXPECT_STREQ(beyond_device_training(spec), kWhat);
  EXPECT_STREQ(beyond_training(spec), kWhat);
}

TEST(Supported, DevicesRefuseLatentAttention) {
  for (const auto& [family, keys] : winnow::testing::latent_families()) {
    const ModelSpec spec = winnow::testing::spec_of(family, {}, keys);
    EXPECT_STREQ(beyond_devices(spec), "latent attention") << family;
    EXPECT_STREQ(beyond_device_training(spec), "latent attention") << family;
    EXPECT_NE(beyond_plain(spec), nullptr) << family;
  }
}

// Changes one property of a plain model at a time: each must be reported, none silently ignored.
class Properties : public ::testing::Test {
 protected:
  void expect_trained(const char* what, const auto& change) {
    ModelSpec spec = winnow::testing::spec_of("llama", {});
    ASSERT_EQ(beyond_plain(spec), nullptr);
    for (LayerSpec& layer : spec.layers) {
      change(spec, layer, std::get<AttentionSpec>(layer.mixer));
    }
    EXPECT_EQ(beyond_devices(spec), nullptr) << what;
    EXPECT_STREQ(beyond_plain(spec), what);
    EXPECT_EQ(beyond_device_training(spec), nullptr) << what;
  }
};

using Layer = LayerSpec;
using Attention = AttentionSpec;

TEST_F(Properties, FastPathsRefuseWhatTrainingComputes) {
  expect_trained("parallel layers",
                 [](ModelSpec&, Layer& layer, Attention&) { layer.parallel = true; });
  expect_trained("LayerNorm", [](ModelSpec&, Layer& layer, Attention&) {
    layer.norm.kind = NormSpec::Kind::layer;
  });
  expect_trained("interleaved RoPE", [](ModelSpec&, Layer&, Attention& attention) {
    attention.rope->interleaved = true;
  });
  expect_trained("chunked attention", [](ModelSpec&, Layer&, Attention& attention) {
    attention.reach = {Reach::Kind::chunked, 8};
  });
  expect_trained("norms of queries and keys of its own kind",
                 [](ModelSpec&, Layer&, Attention& attention) {
                   attention.query_key_norm = AttentionSpec::QueryKeyNorm::own_per_head;
                 });
  expect_trained("norms of queries and keys of its own kind",
                 [](ModelSpec&, Layer&, Attention& attention) {
                   attention.query_key_norm = AttentionSpec::QueryKeyNorm::per_head;
                   attention.norms_after_rope = true;
                 });
  expect_trained("biases of logits",
                 [](ModelSpec& spec, Layer&, Attention&) { spec.head_bias = true; });
}

TEST_F(Properties, FastPathsRefuseWhatGemma4Has) {
  expect_trained("normed values",
                 [](ModelSpec&, Layer&, Attention& attention) { attention.value_norm = true; });
  expect_trained("normed values", [](ModelSpec&, Layer&, Attention& attention) {
    attention.values_are_keys = true;
  });
  expect_trained("scaled layers",
                 [](ModelSpec&, Layer& layer, Attention&) { layer.output_scale = true; });
  expect_trained("embeddings for each layer",
                 [](ModelSpec& spec, Layer&, Attention&) { spec.layer_embeddings = {.width = 8}; });
}

TEST(Supported, TrainingOnDevicesTakesChunksOfOneWidth) {
  ModelSpec spec = winnow::testing::spec_of("llama", {.layers = 2});
  int width = 8;
  for (LayerSpec& layer : spec.layers) {
    std::get<AttentionSpec>(layer.mixer).reach = {Reach::Kind::chunked, width++};
  }
  EXPECT_STREQ(beyond_device_training(spec), "chunks of several widths");
}

TEST(Supported, DevicesRunAndTrainGemma4) {
  for (const auto& keys : winnow::testing::gemma4_keys()) {
    const ModelSpec spec = winnow::testing::spec_of(
        "gemma4_text", {.layers = static_cast<int>(keys.at("layer_types").size())}, keys);
    EXPECT_EQ(beyond_devices(spec), nullptr);
    EXPECT_NE(beyond_plain(spec), nullptr);
    EXPECT_EQ(beyond_device_training(spec), nullptr);
  }
}

// OLMo 2's norms over all heads, with a change in the last layer.
ModelSpec whole_norms(const auto& change) {
  ModelSpec spec = winnow::testing::spec_of("olmo2", {.layers = 2});
  EXPECT_EQ(beyond_device_training(spec), nullptr);
  change(spec.layers.back(), std::get<AttentionSpec>(spec.layers.back().mixer));
  return spec;
}

TEST(Supported, DevicesRefuseWhatTheyDoNotCompute) {
  const auto expect_refused = [](const char* what, const auto& change) {
    const ModelSpec spec = whole_norms(change);
    EXPECT_STREQ(beyond_devices(spec), what);
    EXPECT_STREQ(beyond_device_training(spec), what);
  };
  const char* behind = "norms over all heads together that are behind RoPE or LayerNorm";
  expect_refused(behind, [](Layer&, Attention& attention) { attention.norms_after_rope = true; });
  const char* beside = "norms over all heads together beside shared entries or keys as values";
  expect_refused(beside, [](Layer&, Attention& attention) { attention.shares = 0; });
  expect_refused(beside, [](Layer&, Attention& attention) { attention.values_are_keys = true; });
}

TEST(Supported, TrainingOnDevicesRefusesWhatItDoesNotCompute) {
  const auto expect_refused = [](const char* what, const auto& change) {
    const ModelSpec spec = whole_norms(change);
    EXPECT_EQ(beyond_devices(spec), nullptr);
    EXPECT_STREQ(beyond_device_training(spec), what);
  };
  expect_refused("norms over all heads together beside output gates",
                 [](Layer&, Attention& attention) { attention.output_gate = true; });
  expect_refused("norms over all heads together beside normed values with biases",
                 [](Layer&, Attention& attention) {
                   attention.value_norm = true;
                   attention.qkv_bias = true;
                 });
  const char* weights =
      "norms over all heads together without weights or with weights stored minus 1";
  expect_refused(weights, [](Layer&, Attention& attention) { attention.norm_weights = false; });
  expect_refused(weights,
                 [](Layer& layer, Attention&) { layer.norm.kind = NormSpec::Kind::rms_plus_one; });
}

TEST(Supported, DevicesRefuseEmbeddingsOfLayersBesideLayerNorm) {
  for (const bool is_final : {false, true}) {
    ModelSpec spec = winnow::testing::spec_of("llama", {.layers = 2});
    spec.layer_embeddings = {.width = 8};
    ASSERT_EQ(beyond_devices(spec), nullptr);
    (is_final ? spec.final_norm : spec.layers.back().norm).kind = NormSpec::Kind::layer;
    EXPECT_STREQ(beyond_devices(spec), "embeddings for each layer beside LayerNorm");
  }
}

}  // namespace
}  // namespace winnow::model
