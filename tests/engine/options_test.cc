#include "engine/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/error.h"
#include "kvcache/every_rule.h"
#include "model/spec_of.h"

namespace winnow::engine {
namespace {

using kvcache::RuleKind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

model::ModelSpec dense_model() {
  return winnow::testing::spec_of("llama", {});
}

model::ModelSpec dms_model() {
  model::ModelSpec config = winnow::testing::spec_of("llama", {.max_positions = 4096});
  config.dms = model::DmsConfig{.window = 37, .shift = 0};
  return config;
}

model::ModelSpec dmc_model() {
  model::ModelSpec config = winnow::testing::spec_of("llama", {});
  config.dmc = model::DmcConfig{};
  return config;
}

/// A model with 64 KV heads.
model::ModelSpec large_model() {
  return winnow::testing::spec_of("llama",
                                  {.layers = 8, .heads = 16, .kv_heads = 8, .head_dim = 128});
}

/// The default options, changed by `change`.
LoadOptions with(const std::function<void(LoadOptions&)>& change) {
  LoadOptions options;
  change(options);
  return options;
}

std::string options_error(const std::function<void(LoadOptions&)>& change,
                          const model::ModelSpec& model = dense_model()) {
  try {
    resolve_options(with(change), model);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

LoadOptions cache_and_cr(const std::string& cache, double cr) {
  return with([&](LoadOptions& o) {
    o.cache = cache;
    o.cr = cr;
  });
}

TEST(Options, AutoIsWhatTheCheckpointWasTrainedFor) {
  EXPECT_EQ(resolve_options({}, dense_model()).cache.rule, RuleKind::dense);
  EXPECT_EQ(resolve_options({}, dmc_model()).cache.rule, RuleKind::dmc);
  const EngineConfig dms = resolve_options({}, dms_model());
  EXPECT_EQ(dms.cache.rule, RuleKind::dms);
  EXPECT_EQ(dms.cache.window, 37);
  EXPECT_EQ(dms.cache.shift, 0);
  model::ModelSpec disabled = dms_model();
  disabled.dms->evict = false;
  EXPECT_EQ(resolve_options({}, disabled).cache.rule, RuleKind::dense);
}

TEST(Options, AnyModelCanRunDenseOrABaseline) {
  for (const model::ModelSpec& model : {dense_model(), dms_model(), dmc_model()}) {
    const auto dense = with([](LoadOptions& o) { o.cache = "dense"; });
    EXPECT_EQ(resolve_options(dense, model).cache.rule, RuleKind::dense);
    for (const RuleKind rule : winnow::testing::every_baseline()) {
      LoadOptions options = cache_and_cr(std::string(kvcache::rule_name(rule)), 2.5);
      options.calibration = kvcache::traits_of(rule).calibrated ? "calibration" : "";
      const EngineConfig config = resolve_options(options, model);
      EXPECT_EQ(config.cache.rule, rule);
      EXPECT_EQ(config.cache.cr, 2.5);
    }
  }
}

TEST(Options, AWindowEndsWhereTheModelDoes) {
  const LoadOptions options = with([](LoadOptions& o) { o.window = 1 << 30; });
  EXPECT_EQ(resolve_options(options, dms_model()).cache.window, 4096);
}

TEST(Options, ValuesReachTheEngine) {
  const EngineConfig config = resolve_options(with([](LoadOptions& o) {
                                                o.window = 9;
                                                o.kv_dtype = "int8";
                                                o.kv_gib = 0.5;
                                                o.host_gib = 0.25;
                                                o.dtype = "fp32";
                                                o.chunk = 77;
                                                o.deterministic = true;
                                              }),
                                              dms_model());
  EXPECT_EQ(config.cache.window, 9);
  EXPECT_EQ(config.cache.format, ops::EntryFormat::i8);
  EXPECT_EQ(config.cache.max_bytes, std::size_t{1} << 29);
  EXPECT_EQ(config.host_bytes, std::size_t{1} << 28);
  EXPECT_EQ(config.compute, DType::f32);
  EXPECT_EQ(config.step_tokens, 77);
  EXPECT_TRUE(config.deterministic);
}

TEST(Options, DraftsHaveALength) {
  const auto drafted = [](const char* how) {
    return resolve_options(with([&](LoadOptions& o) { o.speculate = how; }), dense_model())
        .draft_tokens;
  };
  EXPECT_EQ(drafted(""), 0);
  EXPECT_EQ(drafted("lookup"), 8);
  EXPECT_EQ(drafted("lookup:1"), 1);
  EXPECT_EQ(drafted("lookup:15"), 15);
  for (const std::string wrong : {"on", "lookup:", "lookup:0", "lookup:16", "lookup:-1",
                                  "lookup:3x", "lookups", "lookup:99999999999"}) {
    EXPECT_THAT(options_error([&](auto& o) { o.speculate = wrong; }),
                StartsWith("--speculate " + wrong + ": expected lookup or lookup:N"));
  }
}

TEST(Options, EntriesAreStoredAsComputedUnlessSaid) {
  EXPECT_EQ(resolve_options({}, dense_model()).cache.format, ops::EntryFormat::bf16);
  const auto fp32 = with([](LoadOptions& o) { o.dtype = "fp32"; });
  EXPECT_EQ(resolve_options(fp32, dense_model()).cache.format, ops::EntryFormat::f32);
  EXPECT_GT(resolve_options({}, dense_model()).cache.max_bytes, std::size_t{1} << 20);
}

TEST(Options, CacheErrorsNameTheFlag) {
  EXPECT_THAT(options_error([](auto& o) { o.cache = "lru"; }), StartsWith("--cache lru"));
  EXPECT_THAT(options_error([](auto& o) { o.cache = "dms"; }), StartsWith("--cache dms"));
  EXPECT_THAT(options_error([](auto& o) { o.cache = "dmc"; }, dms_model()),
              StartsWith("--cache dmc"));
  EXPECT_THAT(options_error([](auto& o) { o.window = 3; }), StartsWith("--window 3"));
  EXPECT_THAT(options_error([](auto& o) { o.window = 3; }, dmc_model()), StartsWith("--window 3"));
  EXPECT_THAT(options_error([](auto& o) { o.window = -1; }, dms_model()),
              StartsWith("--window -1"));
  EXPECT_THAT(options_error([](auto& o) { o.kv_dtype = "q3"; }), StartsWith("--kv-dtype q3"));
  for (const double bad : {-1.0, 1e9, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(options_error([&](auto& o) { o.kv_gib = bad; }), StartsWith("--kv-gib"));
    EXPECT_THAT(options_error([&](auto& o) { o.host_gib = bad; }), StartsWith("--host-gib"));
  }
}

TEST(Options, HostMemoryIsOfThisHostAndForOneDevice) {
  EXPECT_EQ(resolve_options({}, dense_model()).host_bytes, 0U);
  EXPECT_THAT(options_error([](auto& o) { o.host_gib = 90'000.0; }),
              StartsWith("--host-gib 90000: this process may use "));
  for (const char* device : {"cpu", "cuda"}) {
    EXPECT_EQ(options_error([&](auto& o) {
                o.host_gib = 0.25;
                o.tensor_parallel = 2;
                o.device = device;
              }),
              "no error");
  }
}

TEST(Options, ACacheHoldsOnePageOfEachHead) {
  EXPECT_THAT(options_error([](auto& o) { o.kv_gib = 90'000.0; }),
              AllOf(StartsWith("--kv-gib 90000: this process may use "),
                    HasSubstr(" GiB of memory in all")));
  EXPECT_THAT(options_error([](auto& o) { o.kv_gib = 1e-5; }, large_model()),
              AllOf(StartsWith("--kv-gib 1e-05: has no room for one page of each KV head"),
                    HasSubstr("the least is 0.000489")));  // 64 pages of 8,200 bytes
  EXPECT_EQ(options_error([](auto& o) { o.kv_gib = 0.000489; }, large_model()), "no error");
  // DMC stores entries that may still merge with the next token in fp32.
  model::ModelSpec merges = large_model();
  merges.dmc = model::DmcConfig{};
  EXPECT_THAT(options_error([](auto& o) { o.kv_gib = 0.000489; }, merges), StartsWith("--kv-gib"));
  EXPECT_EQ(options_error([](auto& o) { o.kv_gib = 0.000978; }, merges), "no error");
}

TEST(Options, RatioErrorsNameTheFlag) {
  for (const RuleKind kind : winnow::testing::every_baseline()) {
    const std::string rule(kvcache::rule_name(kind));
    EXPECT_THAT(options_error([&](auto& o) { o.cache = rule; }),
                StartsWith("--cache " + rule + " needs --cr"));
    for (const double bad : {0.0, 0.5, -2.0, 1e7, std::numeric_limits<double>::quiet_NaN()}) {
      EXPECT_THAT(options_error([&](auto& o) { o = cache_and_cr(rule, bad); }), StartsWith("--cr"));
    }
  }
  const auto set_cr = [](auto& o) { o.cr = 4; };
  EXPECT_THAT(options_error(set_cr, dense_model()), StartsWith("--cr 4"));
  EXPECT_THAT(options_error(set_cr, dms_model()), StartsWith("--cr 4"));
  EXPECT_THAT(options_error(set_cr, dmc_model()), StartsWith("--cr 4"));
}

TEST(Options, CalibrationGoesWithRulesThatNeedIt) {
  const auto error = [](const std::string& cache, const std::string& file,
                        const model::ModelSpec& model) {
    return options_error(
        [&](auto& o) {
          o = cache_and_cr(cache, 4);
          o.calibration = file;
        },
        model);
  };
  EXPECT_EQ(error("triattention", "c", dense_model()), "no error");
  EXPECT_THAT(error("triattention", "", dense_model()),
              StartsWith("--cache triattention needs --calibration FILE; winnow calibrate"));
  EXPECT_EQ(error("h2o", "c", dense_model()),
            "--calibration c: goes with --cache triattention only, this is h2o");
  model::ModelSpec unturned = dense_model();
  std::get<model::AttentionSpec>(unturned.layers[1].mixer).rope.reset();
  EXPECT_THAT(error("triattention", "c", unturned),
              StartsWith("--cache triattention: layer 1 has no RoPE"));
}

TEST(Options, RulesOfBothKindsNeedAModelAndARatio) {
  for (const std::string rule : {"dms_quest", "dms_budget"}) {
    EXPECT_THAT(options_error([&](auto& o) { o = cache_and_cr(rule, 4); }, dense_model()),
                StartsWith("--cache " + rule + ": the model was not trained for it"));
    EXPECT_THAT(options_error([&](auto& o) { o.cache = rule; }, dms_model()),
                StartsWith("--cache " + rule + " needs --cr"));
    EXPECT_THAT(options_error([&](auto& o) { o = cache_and_cr(rule, 0.5); }, dms_model()),
                StartsWith("--cr 0.5"));
    LoadOptions options = cache_and_cr(rule, 16);
    options.window = 3;
    const auto config = resolve_options(options, dms_model());
    EXPECT_EQ(config.cache.cr, 16.0);
    EXPECT_EQ(config.cache.window, 3);
    EXPECT_EQ(config.cache.shift, dms_model().dms->shift);
    options.device = "cuda";
    EXPECT_NO_THROW(resolve_options(options, dms_model()));
  }
}

TEST(Options, ADeviceRefusesRulesWithoutKernels) {
  for (const std::string& rule : winnow::testing::every_baseline_name()) {
    LoadOptions options = cache_and_cr(rule, 4);
    options.device = "cuda";
    if (kvcache::traits_of(*kvcache::parse_rule(rule)).has_kernels()) {
      EXPECT_NO_THROW(resolve_options(options, dense_model()));
    } else {
      EXPECT_THAT(options_error([&](auto& o) { o = options; }, dense_model()),
                  StartsWith("--cache " + options.cache + ": runs on the CPU only"));
    }
  }
}

TEST(Options, ComputationHasOtherProgramsNames) {
  for (const char* name : {"bf16", "bfloat16", "auto"}) {
    EXPECT_EQ(parse_dtype(name).type, DType::bf16) << name;
    EXPECT_FALSE(parse_dtype(name).fp8_products) << name;
  }
  EXPECT_EQ(parse_dtype("fp32").type, DType::f32);
  EXPECT_TRUE(parse_dtype("fp8").fp8_products);
  EXPECT_THAT(options_error([](auto& o) { o.dtype = "float16"; }),
              StartsWith("--dtype float16: expected bf16, fp32 or fp8 (is bf16 meant?)"));
}

TEST(Options, ComputationErrorsNameTheFlag) {
  EXPECT_THAT(options_error([](auto& o) { o.dtype = "fp16"; }), StartsWith("--dtype fp16"));
  EXPECT_THAT(options_error([](auto& o) { o.device = "cuda:x"; }), StartsWith("--device cuda:x"));
  EXPECT_THAT(options_error([](auto& o) { o.device = "gpu"; }), StartsWith("--device gpu"));
  EXPECT_THAT(options_error([](auto& o) {
                o.device = "cuda";
                o.dtype = "fp32";
              }),
              StartsWith("--dtype fp32"));
  EXPECT_THAT(options_error([](auto& o) { o.threads = -1; }), StartsWith("--threads -1"));
  EXPECT_THAT(options_error([](auto& o) { o.threads = 5000; }), StartsWith("--threads 5000"));
  EXPECT_THAT(options_error([](auto& o) { o.chunk = -1; }), StartsWith("--chunk -1"));
  EXPECT_THAT(options_error([](auto& o) { o.chunk = 1 << 21; }), StartsWith("--chunk"));
}

TEST(Options, Weights) {
  const auto of = [](const char* weights, const char* device) {
    LoadOptions options;
    options.weights = weights;
    options.device = device;
    return resolve_options(options, dense_model());
  };
  EXPECT_EQ(host_format(of("auto", "cpu")), std::nullopt);
  EXPECT_EQ(host_format(of("int8", "cpu")), ops::WeightFormat::int8);
  EXPECT_EQ(host_format(of("int4", "cpu")), ops::WeightFormat::int4);
  // A device converts weights itself.
  EXPECT_EQ(host_format(of("fp8", "cuda:1")), std::nullopt);
  EXPECT_EQ(of("fp8", "cuda:1").weights, WeightStorage::fp8);
  EXPECT_THROW(of("fp8", "cpu"), Error);
  EXPECT_THROW(of("int2", "cuda"), Error);
}

TEST(Options, Fp8ProductsWantFp8WeightsOnADevice) {
  const auto of = [](const char* weights, const char* device) {
    LoadOptions options;
    options.dtype = "fp8";
    options.weights = weights;
    options.device = device;
    return resolve_options(options, dense_model());
  };
  const EngineConfig config = of("fp8", "cuda");
  EXPECT_TRUE(config.fp8_products);
  EXPECT_EQ(config.compute, DType::bf16);
  EXPECT_EQ(config.cache.format, ops::EntryFormat::bf16);
  EXPECT_THROW(of("auto", "cuda"), Error);
  EXPECT_THROW(of("int8", "cpu"), Error);
}

TEST(Options, EntryTypesHaveNames) {
  for (const std::string_view name : {"bf16", "fp8", "int8", "q4", "fp32"}) {
    EXPECT_EQ(ops::format_name(parse_kv_dtype(name)), name);
  }
  EXPECT_THROW(parse_kv_dtype(""), Error);
}

}  // namespace
}  // namespace winnow::engine
