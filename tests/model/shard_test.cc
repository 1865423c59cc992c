// Splits models into parts for ranks.
#include "model/shard.h"

#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "model/checkpoint.h"
#include "model/fixture.h"
#include "model/sharded_tensors.h"
#include "model/spec_of.h"
#include "model/weights.h"

namespace winnow::model {
namespace {

std::vector<int> sizes(int total, int ranks, Range (*share)(int, const Shard&)) {
  std::vector<int> result;
  int end = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Range range = share(total, {rank, ranks});
    EXPECT_EQ(range.begin, end);
    end = range.end;
    result.push_back(range.size());
  }
  EXPECT_EQ(end, total);
  return result;
}

TEST(ShareOf, DiffersByOneAtMost) {
  const auto share = [](int total, const Shard& shard) { return share_of(total, shard); };
  EXPECT_EQ(sizes(8, 2, share), (std::vector{4, 4}));
  EXPECT_EQ(sizes(8, 3, share), (std::vector{2, 3, 3}));
  EXPECT_EQ(sizes(32003, 2, share), (std::vector{16001, 16002}));
}

TEST(ShareOfWidth, KeepsGroupsWholeWhereItCan) {
  EXPECT_EQ(sizes(8192, 2, share_of_width), (std::vector{4096, 4096}));
  EXPECT_EQ(sizes(8960, 2, share_of_width), (std::vector{4480, 4480}));  // 35 groups of 256
  EXPECT_EQ(sizes(1536, 3, share_of_width), (std::vector{512, 512, 512}));
  EXPECT_EQ(sizes(160, 3, share_of_width), (std::vector{32, 64, 64}));  // 5 groups of 32
  EXPECT_EQ(sizes(64, 3, share_of_width), (std::vector{21, 21, 22}));   // no empty part
  EXPECT_EQ(sizes(7, 2, share_of_width), (std::vector{3, 4}));
}

TEST(ShareOfKvHeads, GivesOneToSeveralRanksWhereThereAreFewer) {
  const auto heads = [](int kv_heads, int ranks) {
    std::vector<std::array<int, 3>> shares;  // head, place among its ranks, their number
    for (int rank = 0; rank < ranks; ++rank) {
      const HeadShare share = share_of_kv_heads(kv_heads, {rank, ranks});
      EXPECT_EQ(share.kv_heads.size(), 1);
      EXPECT_EQ(share.holders.ranks, holders_of(share.kv_heads.begin, kv_heads, ranks));
      shares.push_back({share.kv_heads.begin, share.holders.rank, share.holders.ranks});
    }
    return shares;
  };
  using Shares = std::vector<std::array<int, 3>>;
  EXPECT_EQ(heads(3, 3), (Shares{{0, 0, 1}, {1, 0, 1}, {2, 0, 1}}));
  EXPECT_EQ(heads(1, 3), (Shares{{0, 0, 3}, {0, 1, 3}, {0, 2, 3}}));
  EXPECT_EQ(heads(2, 4), (Shares{{0, 0, 2}, {0, 1, 2}, {1, 0, 2}, {1, 1, 2}}));
  EXPECT_EQ(heads(2, 3), (Shares{{0, 0, 1}, {1, 0, 2}, {1, 1, 2}}));
  EXPECT_EQ(heads(3, 5), (Shares{{0, 0, 1}, {1, 0, 2}, {1, 1, 2}, {2, 0, 2}, {2, 1, 2}}));
}

// Each query head is on one rank, which also has its KV head; no rank has none.
TEST(ShareOfQueries, CoversEachOnce) {
  for (int kv_heads = 1; kv_heads <= 9; ++kv_heads) {
    for (int group = 1; group <= 8; ++group) {
      AttentionSpec whole;
      whole.kv_heads = kv_heads;
      whole.heads = kv_heads * group;
      for (int ranks = 1; ranks <= whole.heads; ++ranks) {
        int next = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const Range queries = share_of_queries(whole, {rank, ranks});
          const Range heads = share_of_kv_heads(kv_heads, {rank, ranks}).kv_heads;
          ASSERT_EQ(queries.begin, next);
          ASSERT_GT(queries.size(), 0);
          ASSERT_EQ(queries.begin / group, heads.begin);
          ASSERT_EQ((queries.end - 1) / group, heads.end - 1);
          ASSERT_EQ(queries.size() % heads.size(), 0);
          next = queries.end;
        }
        ASSERT_EQ(next, whole.heads);
      }
    }
  }
}

TEST(ShardSpec, SharesOutTheQueriesOfAKvHead) {
  const ModelSpec whole = winnow::testing::spec_of("llama", {.heads = 6, .kv_heads = 2});
  std::vector<std::array<int, 3>>
      parts;  // query heads, those of the KV head, the first one's place
  for (int rank = 0; rank < 5; ++rank) {
    const ModelSpec part = shard_spec(whole, {rank, 5});
    EXPECT_EQ(part.attention().kv_heads, 1);
    ASSERT_TRUE(part.attention().group_share.has_value());
    EXPECT_EQ(part.attention().whole_group(), 3);
    parts.push_back({part.attention().heads, part.attention().group_share->group,
                     part.attention().group_share->first});
  }
  EXPECT_EQ(parts, (std::vector<std::array<int, 3>>{
                       {1, 3, 0}, {2, 3, 1}, {1, 3, 0}, {1, 3, 1}, {1, 3, 2}}));
  EXPECT_FALSE(shard_spec(whole, {0, 2}).attention().group_share.has_value());
  EXPECT_THROW(shard_spec(whole, {0, 7}), Error);
}

// The cuts give the shapes of the part's description, for every tensor of every family: a missing
// cut would load the tensor whole.
TEST(TensorCuts, HaveTheShapesOfThePart) {
  for (const auto& entry : std::filesystem::directory_iterator(winnow::testing::fixture_models())) {
    SCOPED_TRACE(entry.path().filename().string());
    const ModelSpec whole = Checkpoint::open(entry.path()).spec();
    for (const Shard shard : {Shard{0, 2}, Shard{1, 2}, Shard{0, 3}, Shard{1, 3}, Shard{2, 4}}) {
      ModelSpec part;
      try {
        part = shard_spec(whole, shard);
      } catch (const Error&) {
        continue;  // too few heads, or mixers that cannot be split
      }
      auto cuts = tensor_cuts(whole, shard);
      const auto own = expected_tensors(part);
      for (auto [name, shape] : expected_tensors(whole)) {
        if (const auto cut = cuts.find(name); cut != cuts.end()) {
          std::int64_t length = 0;
          for (const Range& range : cut->second.ranges) {
            length += range.size();
          }
          shape[cut->second.axis == TensorCut::Axis::rows ? 0 : 1] = length;
          cuts.erase(cut);
        }
        EXPECT_EQ(shape, own.at(name)) << name;
      }
      for (const auto& [name, _] : optional_tensors(whole)) {
        cuts.erase(name);
      }
      for (const auto& [name, _] : cuts) {
        ADD_FAILURE() << name << ": the model has no such tensor";
      }
    }
  }
}

std::vector<float> values_of(const ops::Weight& weight) {
  std::vector<float> values(static_cast<std::size_t>(weight.rows * weight.cols));
  for (std::int64_t row = 0; row < weight.rows; ++row) {
    ops::dequantize_row(weight, row, values.data() + row * weight.cols);
  }
  return values;
}

// Each rank generates only its own rows, which may begin within a block of random numbers.
TEST(RandomWeights, OfPartsAreThoseOfTheWhole) {
  const ModelSpec spec = winnow::testing::spec_of("llama", {.intermediate = 7168, .vocab = 5000});
  const Weights whole = random_weights(spec, DType::bf16, 3);
  const LayerWeights& layer = whole.layers[1];
  std::vector<float> embedding;
  std::vector<float> gate;
  std::vector<std::vector<float>> down;
  for (int rank = 0; rank < 2; ++rank) {
    const Weights part = random_weights(spec, DType::bf16, 3, {}, {rank, 2});
    std::ranges::copy(values_of(part.embedding), std::back_inserter(embedding));
    std::ranges::copy(values_of(part.layers[1].gate), std::back_inserter(gate));
    down.push_back(values_of(part.layers[1].down));
  }
  EXPECT_EQ(embedding, values_of(whole.embedding));
  EXPECT_EQ(gate, values_of(layer.gate));
  const auto columns = static_cast<std::size_t>(layer.down.cols);
  const std::size_t half = columns / 2;
  std::vector<float> joined(values_of(layer.down).size());
  for (std::size_t i = 0; i < joined.size(); ++i) {
    const std::size_t column = i % columns;
    joined[i] = down[column / half].at(i / columns * half + column % half);
  }
  EXPECT_EQ(joined, values_of(layer.down));
}

}  // namespace
}  // namespace winnow::model
