#include "kvcache/rule_traits.h"

#include <gtest/gtest.h>

namespace winnow::kvcache {
namespace {

TEST(RuleTraits, ARowIsFoundByItsKindAndItsName) {
  for (const RuleTraits& rule : kRules) {
    EXPECT_EQ(&traits_of(rule.kind), &rule);
    EXPECT_EQ(parse_rule(rule.name), rule.kind);
  }
  EXPECT_FALSE(parse_rule("sparse").has_value());
  EXPECT_FALSE(parse_rule(kSlidingWindow.name).has_value());
}

TEST(RuleTraits, NamesAreListedAsTextHasThem) {
  EXPECT_EQ(list_rules("or"),
            "dense, dms, dmc, streaming, tova, h2o, quest, random, snapkv, rkv, vatp, pyramidkv, "
            "expected_attention, triattention, dms_quest or dms_budget");
  EXPECT_EQ(list_rules("and", [](const RuleTraits& rule) { return rule.learned_alone(); }),
            "dms and dmc");
  EXPECT_EQ(list_rules("or", [](const RuleTraits& rule) { return rule.merges; }), "dmc");
}

}  // namespace
}  // namespace winnow::kvcache
