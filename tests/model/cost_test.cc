#include "model/cost.h"

#include <gtest/gtest.h>

#include "model/checkpoint.h"
#include "model/families/families.h"
#include "model/spec_of.h"

namespace winnow::model {
namespace {

// The definition of Reach, for one query and one key.
bool sees(const Reach& reach, int query, int key) {
  switch (reach.kind) {
    case Reach::Kind::full:
      return true;
    case Reach::Kind::sliding:
      return query - key < reach.width;
    case Reach::Kind::chunked:
      return key / reach.width == query / reach.width;
  }
  return false;
}

TEST(Cost, EntriesAreThoseInReach) {
  for (const Reach& reach :
       {Reach{}, Reach{Reach::Kind::sliding, 7}, Reach{Reach::Kind::chunked, 7},
        Reach{Reach::Kind::sliding, 500}, Reach{Reach::Kind::chunked, 500}}) {
    double sum = 0.0;
    for (int query = 0; query < 40; ++query) {
      int seen = 0;
      for (int key = 0; key <= query; ++key) {
        seen += sees(reach, query, key) ? 1 : 0;
      }
      sum += seen;
      EXPECT_EQ(visible_entries(reach, query + 1.0), seen) << reach.width << ' ' << query;
      // Each query sees half an entry more than the area under the curve at its position.
      EXPECT_NEAR(mean_visible_entries(reach, query + 1.0), sum / (query + 1.0), 0.51)
          << reach.width << ' ' << query;
    }
  }
}

// Whether a tensor belongs to an expert that no token takes (tokens take the first ones).
bool is_idle(const ModelSpec& spec, const std::string& name) {
  constexpr std::string_view kExperts = ".experts.";
  const auto at = name.find(kExperts);
  return at != std::string::npos &&
         std::stoi(name.substr(at + kExperts.size())) >= spec.experts()->experts->active;
}

TEST(Cost, EveryMatrixMultipliesAToken) {
  auto models = testing::recurrent_cousins();
  for (const Family& family : families()) {
    models.push_back({family.model_type.data(),
                      {{"full_attention_interval", 2},
                       {"attn_layer_indices", {0, 1}},
                       {"layers_block_type", {"attention", "attention"}}}});
  }
  for (auto& [family, keys] : models) {
    for (const bool tied : {false, true}) {
      keys["tie_word_embeddings"] = tied;
      const ModelSpec spec = testing::spec_of(family, {}, keys);
      double weights = 0.0;
      for (const auto& [name, shape] : expected_tensors(spec)) {
        const bool looked_up = (!tied && name == "model.embed_tokens.weight") ||
                               name == "model.embed_tokens_per_layer.weight" ||
                               name.ends_with("_bias");
        weights += shape.size() == 2 && !looked_up && !is_idle(spec, name)
                       ? 1.0 * shape[0] * shape[1]
                       : 0.0;
      }
      EXPECT_EQ(multiplied_weights(spec), weights) << family << ' ' << tied;
    }
  }
}

TEST(Cost, ManyTokensReadAllExperts) {
  const ModelSpec spec = testing::spec_of("mixtral", {});
  EXPECT_EQ(read_weights(spec, 1.0), multiplied_weights(spec));
  const double experts = 3.0 * 32 * 48 * 2;  // one expert in both layers
  const double others = multiplied_weights(spec) - 2 * experts;
  EXPECT_EQ(share_of_experts(*spec.experts()->experts, 2.0), 1.0 - 0.75 * 0.75);
  EXPECT_NEAR(read_weights(spec, 2.0), others + 8 * 0.4375 * experts, 1e-6);
  EXPECT_NEAR(read_weights(spec, 1e3), others + 8 * experts, 1e-6);
  EXPECT_EQ(stored_weights(spec), others + 8 * experts);
  EXPECT_EQ(stored_weights_beside_experts(spec), others);
}

TEST(Cost, SlidingLayersHoldNoMoreThanTheyReach) {
  const ModelSpec spec = testing::spec_of("gemma2", {}, {{"sliding_window", 24}});
  EXPECT_EQ(dense_entries(spec, 10), 2 * (10 + 10));
  EXPECT_EQ(dense_entries(spec, 100), 2 * (24 + 100));
}

}  // namespace
}  // namespace winnow::model
