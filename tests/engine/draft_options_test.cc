#include "engine/draft_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "engine/cache_memory.h"
#include "engine/options.h"
#include "model/model.h"
#include "model/spec_of.h"

namespace winnow::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

model::ModelSpec plain_model() {
  return winnow::testing::spec_of("llama", {});
}

TEST(DraftOptions, DraftsOfAModelNeedTheModel) {
  const auto drafted = [](const std::string& how, const std::string& model) {
    return parse_speculate({.speculate = how, .draft_model = model});
  };
  const auto error = [&](const std::string& how, const std::string& model) -> std::string {
    try {
      drafted(how, model);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(drafted("", "small"), 8);
  EXPECT_EQ(drafted("model", "small"), 8);
  EXPECT_EQ(drafted("model:3", "small"), 3);
  EXPECT_EQ(error("model:3", ""),
            "--speculate model:3: needs --draft-model, the model that drafts");
  EXPECT_EQ(error("lookup", "small"), "--speculate lookup: excludes --draft-model small");
  for (const std::string wrong : {"model:", "model:0", "model:16", "models", ":3"}) {
    EXPECT_THAT(error(wrong, "small"), StartsWith("--speculate " + wrong + ": expected lookup"));
  }
}

TEST(DraftOptions, MtpLayersAreInTheModelsFiles) {
  EXPECT_EQ(parse_speculate({.speculate = "mtp"}), 8);
  EXPECT_EQ(parse_speculate({.speculate = "mtp:3"}), 3);
  EXPECT_TRUE(drafts_by_mtp({.speculate = "mtp:3"}));
  EXPECT_FALSE(drafts_by_mtp({.speculate = "lookup"}));
  EXPECT_EQ(options_of_draft_model({.model = "large", .speculate = "mtp"}).model, "large");
  const auto error = [](const LoadOptions& options) -> std::string {
    try {
      resolve_options(options, plain_model());
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error({.speculate = "mtp", .draft_model = "small"}),
            "--speculate mtp: excludes --draft-model small");
  EXPECT_EQ(error({.tensor_parallel = 2, .speculate = "mtp:2"}),
            "--speculate mtp:2 with --tensor-parallel: runs on one rank only");
  EXPECT_THAT(error({.speculate = "mtp:0"}), StartsWith("--speculate mtp:0: expected lookup"));
}

TEST(DraftOptions, RefuseSeveralRanks) {
  try {
    resolve_options({.tensor_parallel = 2, .draft_model = "small"}, plain_model());
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "--draft-model with --tensor-parallel: runs on one rank only");
  }
}

// The caches of a model and its draft model together take what --kv-gib says.
TEST(DraftOptions, ADraftModelSharesTheCache) {
  const auto shape = model::cache_shape(plain_model());
  auto small = shape;
  small.kv_heads = 1;
  small.layers = 1;
  EngineConfig config = resolve_options({.kv_gib = 1.0}, plain_model());
  config.prefix_bytes = config.cache.max_bytes;
  share_cache(config, shape, config.cache, small);
  const double heads = shape.all_heads();
  EXPECT_NEAR(static_cast<double>(config.draft_cache.max_bytes), 0x1p30 / (heads + 1.0), 1.0);
  EXPECT_EQ(config.cache.max_bytes + config.draft_cache.max_bytes, std::size_t{1} << 30);
  EXPECT_EQ(config.prefix_bytes, config.cache.max_bytes);
  config.cache.max_bytes = std::size_t{1} << 30;
  share_cache(config, shape, config.cache, shape);
  EXPECT_EQ(config.draft_cache.max_bytes, std::size_t{1} << 28);  // a quarter at most
  config.cache.max_bytes = least_cache_bytes(config.cache, shape);
  try {
    share_cache(config, shape, config.cache, shape);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("with --draft-model it has no room for one page"));
  }
  EngineConfig unlimited = resolve_options({}, plain_model());
  share_cache(unlimited, shape, unlimited.cache, small);
  EXPECT_EQ(unlimited.draft_cache.max_bytes, kAllThereIs);
  EXPECT_NEAR(unlimited.draft_cache_part, 1.0 / (heads + 1.0), 1e-9);
}

}  // namespace
}  // namespace winnow::engine
