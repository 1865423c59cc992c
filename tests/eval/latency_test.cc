#include "eval/latency.h"

#include <gtest/gtest.h>

#include "base/error.h"

#include "model/spec_of.h"

namespace winnow::eval {
namespace {

model::ModelSpec llama_3_1_8b() {
  return testing::spec_of("llama", {.hidden = 4096,
                                    .layers = 32,
                                    .heads = 32,
                                    .kv_heads = 8,
                                    .head_dim = 128,
                                    .intermediate = 14336,
                                    .vocab = 128256});
}

constexpr double kPeak = 989.5e12;  // H100 SXM, the paper's value
constexpr double kBandwidth = 3.35e12;

StepCost cost(double batch, double length, double ratio = 1.0) {
  return step_cost(llama_3_1_8b(), batch, length,
                   {.flops_per_s = kPeak, .bytes_per_s = kBandwidth, .compression_ratio = ratio});
}

// Equations 4 and 5 of the paper, except for the first term of 4: the paper prints 1.45e9, but its
// equation 2 gives 1.50e10.
TEST(StepCost, IsThePapersForLlama8b) {
  EXPECT_NEAR(cost(1, 0).reads(), 1.50e10, 0.01e10);
  EXPECT_NEAR(cost(1, 0).reads() / 2.0, 7.5e9, 0.01e9);  // the parameters without the embedding
  EXPECT_NEAR(cost(1, 1000).kv_reads, 1.31e5 * 1000, 0.01e5 * 1000);
  EXPECT_NEAR(cost(4, 1000).kv_reads, 4 * cost(1, 1000).kv_reads, 1.0);
  EXPECT_NEAR(cost(1, 1000).flops - cost(1, 0).flops, 5.24e5 * 1000, 0.01e5 * 1000);
  EXPECT_NEAR(cost(1, 0).flops, cost(1, 0).reads(), 1.0);  // two FLOPs and two bytes per weight
}

TEST(StepCost, TakesTheSlowerOfBoth) {
  const StepCost one = cost(1, 8192);
  EXPECT_NEAR(one.seconds, one.reads() / kBandwidth, 1e-12);
  EXPECT_NEAR(one.kv_share, one.kv_reads / one.reads(), 1e-12);
  const StepCost many = cost(4096, 1);
  EXPECT_NEAR(many.seconds, many.flops / kPeak, 1e-12);
  EXPECT_LT(many.kv_share, 0.01);
}

TEST(StepCost, CompressionDividesTheCache) {
  EXPECT_NEAR(cost(8, 8192, 8.0).kv_reads, cost(8, 1024).kv_reads, 1e-3);
  EXPECT_NEAR(cost(8, 8192, 8.0).seconds, cost(8, 1024).seconds, 1e-12);
  // The paper: with a batch of 256 and 8K to 32K tokens, the cache dominates a step.
  EXPECT_GT(cost(256, 8192).kv_share, 0.9);
  EXPECT_LT(cost(256, 8192, 8.0).kv_share, cost(256, 8192).kv_share);
}

TEST(StepCost, SlidingLayersReadWhatTheyReach) {
  const auto kv_reads = [](double length, double ratio) {
    const model::ModelSpec spec = testing::spec_of("gemma2", {}, {{"sliding_window", 24}});
    return step_cost(spec, 1, length,
                     {.flops_per_s = 1.0, .bytes_per_s = 1.0, .compression_ratio = ratio})
        .kv_reads;
  };
  const double entry = 2.0 * 2 * 2 * 8;  // bytes of the keys and values of 2 heads with 8 channels
  EXPECT_EQ(kv_reads(100, 1.0), entry * (24 + 100));
  EXPECT_EQ(kv_reads(100, 4.0), entry * (24 + 25));
}

TEST(StepCost, NeedsADevice) {
  EXPECT_THROW(step_cost(llama_3_1_8b(), 1, 1, {}), Error);
}

}  // namespace
}  // namespace winnow::eval
