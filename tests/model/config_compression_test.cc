#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/checkpoint_testing.h"

namespace winnow::model {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using Source = DmsConfig::Source;

/// tiny_config with `changes`, and with a dms_metadata.json if `metadata` is not null.
ModelSpec parse_both(const json& changes, const json& metadata,
                     const std::string& architecture = "LlamaForCausalLM") {
  json config = tiny_config(architecture);
  if (!changes.is_null()) {
    config.merge_patch(changes);
  }
  return parse_spec(
      ConfigTexts{"dir",
                  config.dump(),
                  {},
                  metadata.is_null() ? std::nullopt : std::optional(metadata.dump())});
}

struct Case {
  const char* what;
  const char* architecture;
  json config;
  json metadata;
  DmsConfig expected;
};

DmsConfig make(int window, float scale, float offset, Source source, int shift, bool rezero) {
  DmsConfig dms;
  dms.window = window;
  dms.scale = scale;
  dms.offset = offset;
  dms.source = source;
  dms.shift = shift;
  dms.rezero_after_rope = rezero;
  return dms;
}

std::vector<Case> cases() {
  const DmsConfig nvidia = make(512, 100, 5, Source::borrowed, 1, true);
  const DmsConfig shisa = make(256, 100, 5, Source::borrowed, 0, false);
  std::vector<Case> out = {
      {"NVIDIA's defaults, by any of its keys", "Qwen3ForCausalLM", {{"dms_cr", 8}}, {}, nvidia},
      {"by the architecture alone", "Qwen3ForCausalLMDMS", json::object(), {}, nvidia},
      {"NVIDIA's adapter",
       "Qwen3ForCausalLMDMS",
       {{"dms_separate_alpha", true}},
       {},
       make(512, 100, 5, Source::adapter, 1, true)},
      {"NVIDIA's numbers",
       "LlamaForCausalLMDMS",
       {{"dms_window_size", 16},
        {"dms_alpha_scale", 50},
        {"dms_initial_alpha_offset", 2.5},
        {"dms_tau", 0.1}},
       {},
       make(16, 50, 2.5F, Source::borrowed, 1, true)},
      {"our keys go before the convention",
       "LlamaForCausalLMDMS",
       {{"dms_decision_shift", 0}, {"dms_rezero_after_rope", false}},
       {},
       make(512, 100, 5, Source::borrowed, 0, false)},
      {"shisa-ai, flat",
       "LlamaForCausalLM",
       json::object(),
       {{"window_size", 128}, {"alpha_scale", 10}, {"alpha_offset", 1}, {"context_len", 4096}},
       make(128, 10, 1, Source::borrowed, 0, false)},
      {"shisa-ai, nested",
       "LlamaForCausalLM",
       json::object(),
       {{"config", {{"window_size", 64}}}},
       make(64, 100, 5, Source::borrowed, 0, false)},
      {"shisa-ai's defaults", "LlamaForCausalLM", json::object(), json::object(), shisa},
      {"metadata before config.json, key by key",
       "LlamaForCausalLM",
       {{"dms_window_size", 64}, {"dms_alpha_scale", 7}},
       {{"window_size", 10}},
       make(10, 7, 5, Source::borrowed, 0, false)},
      {"our keys beside metadata",
       "LlamaForCausalLM",
       {{"dms_decision_shift", 1}, {"dms_rezero_after_rope", true}},
       {{"window_size", 10}},
       make(10, 100, 5, Source::borrowed, 1, true)},
      {"metadata added to NVIDIA's checkpoint",
       "Qwen3ForCausalLMDMS",
       json::object(),
       {{"window_size", 10}},
       make(10, 100, 5, Source::borrowed, 1, true)},
      {"metadata added to an adapter",
       "Qwen3ForCausalLM",
       {{"dms_separate_alpha", true}},
       {{"window_size", 10}},
       make(10, 100, 5, Source::adapter, 1, true)},
  };
  out[0].expected.target_cr = 8;
  return out;
}

TEST(DmsConfig, ConventionsInTheWild) {
  for (const Case& c : cases()) {
    const ModelSpec config = parse_both(c.config, c.metadata, c.architecture);
    ASSERT_TRUE(config.dms.has_value()) << c.what;
    EXPECT_EQ(*config.dms, c.expected) << c.what;
    EXPECT_EQ(parse_spec(format_spec(config)), config) << c.what;
  }
}

TEST(DmsConfig, OtherKeys) {
  const DmsConfig dms = *parse_with({{"dms_alpha_per", "layer"},
                                     {"dms_disable_eviction", true},
                                     {"dms_borrowed_channel", 0},
                                     {"dms_cr", 4.5}})
                             .dms;
  EXPECT_TRUE(dms.per_layer);
  EXPECT_FALSE(dms.evict);
  EXPECT_EQ(dms.channel, 0);
  EXPECT_EQ(dms.target_cr, 4.5);
  EXPECT_FALSE(parse_with({{"dms_window_size", nullptr}}).dms.has_value());
}

TEST(DmsConfig, Errors) {
  const auto error = [](const json& config, const json& metadata = {}) {
    return error_of([&] { parse_both(config, metadata); });
  };
  EXPECT_THAT(error({{"dms_alpha_per", "token"}}),
              AllOf(HasSubstr("config.json: dms_alpha_per: expected \"head\" or \"layer\""),
                    HasSubstr("got \"token\"")));
  EXPECT_THAT(error({{"dms_window_size", -1}}), HasSubstr("dms_window_size: expected an integer"));
  EXPECT_THAT(error({{"dms_decision_shift", -1}}), HasSubstr("dms_decision_shift: expected"));
  EXPECT_THAT(error({{"dms_decision_shift", 9}, {"dms_window_size", 7}}),
              HasSubstr("dms_decision_shift: expected an integer from 0 to 8"));
  EXPECT_THAT(error({{"dms_borrowed_channel", 4}}),
              HasSubstr("dms_borrowed_channel: expected an integer from -1 to 3, got 4"));
  EXPECT_THAT(error({{"dms_separate_alpha", "yes"}}), HasSubstr("true or false"));
  EXPECT_THAT(error({}, {{"window_size", "x"}}),
              HasSubstr("dms_metadata.json: window_size: expected an integer"));
  EXPECT_THAT(error({}, {{"config", 1}}),
              HasSubstr("dms_metadata.json: config: expected an object"));
  EXPECT_THAT(error({}, {{"sidecar", json::object()}}), HasSubstr("probe in a file of its own"));
  EXPECT_THAT(error({}, json::array()), HasSubstr("dms_metadata.json: expected a JSON object"));
}

TEST(DmcConfig, MarkedByItsOffset) {
  EXPECT_EQ(parse_with({{"dmc_alpha_offset", 4.0}, {"dmc_cr", 2}}).dmc,
            (DmcConfig{.offset = 4.0F, .target_cr = 2.0}));
  EXPECT_EQ(parse_with({}, "LlamaForCausalLMDMC").dmc, DmcConfig{});
  EXPECT_FALSE(parse_with({{"dmc_cr", 2}}).dmc.has_value());
  EXPECT_FALSE(parse_with({{"dms_note", "not one of the keys"}}).dms.has_value());
  EXPECT_THAT(error_of([] {
                parse_with({{"dmc_alpha_offset", 5}, {"dms_window_size", 5}});
              }),
              HasSubstr("both DMS and DMC"));
  EXPECT_THAT(error_of([] {
                parse_with({{"dmc_alpha_offset", "x"}});
              }),
              HasSubstr("dmc_alpha_offset: expected a number"));
  EXPECT_THAT(error_of([] {
                parse_with({{"dmc_alpha_offset", 5}, {"dmc_alpha_per", "token"}});
              }),
              HasSubstr("dmc_alpha_per: expected \"head\" or \"layer\""));
  EXPECT_THAT(error_of([] {
                parse_with({{"dmc_alpha_offset", 5}, {"dmc_fixed_pooling", -1}});
              }),
              HasSubstr("dmc_fixed_pooling"));
}

std::string model_type(const ConfigTexts& texts) {
  return json::parse(texts.config).at("model_type").get<std::string>();
}

// transformers runs every model_type that it knows as a plain model, so other models need others.
TEST(DmsConfig, SavedModelTypesKeepTransformersFromRunningThemWrongly) {
  EXPECT_EQ(model_type(format_spec(parse_with({}))), "llama");
  EXPECT_EQ(model_type(format_spec(parse_with({{"dms_separate_alpha", true}}))), "llama");
  EXPECT_EQ(model_type(format_spec(parse_with({{"dms_separate_alpha", false}}))), "llama_dms");
  EXPECT_EQ(model_type(format_spec(parse_with({{"dmc_alpha_offset", 5}}))), "llama_dmc");
}

TEST(DmsConfig, SavesShisasConventionAsShisaDoes) {
  const ModelSpec config = parse_both({}, {{"window_size", 128}, {"target_cr", 8}});
  const ConfigTexts texts = format_spec(config);
  EXPECT_EQ(model_type(texts), "llama");
  ASSERT_TRUE(texts.dms_metadata.has_value());
  const json metadata = json::parse(*texts.dms_metadata);
  EXPECT_EQ(metadata, (json{{"window_size", 128},
                            {"alpha_scale", 100.0},
                            {"alpha_offset", 5.0},
                            {"target_cr", 8},
                            {"context_len", 64}}));
  EXPECT_FALSE(format_spec(parse_with({{"dms_cr", 8}})).dms_metadata.has_value());
}

TEST(DmsConfig, DmcRoundTrips) {
  ModelSpec config = parse_with({{"dmc_alpha_offset", 0.1}, {"dmc_cr", 2.5}});
  EXPECT_EQ(parse_spec(format_spec(config)), config);
  config.dmc->per_layer = true;
  config.dmc->pooled = 3;
  EXPECT_EQ(parse_spec(format_spec(config)), config);
  config.dms = DmsConfig{};
  EXPECT_THAT(error_of([&] { format_spec(config); }), HasSubstr("both DMS and DMC"));
}

}  // namespace
}  // namespace winnow::model
