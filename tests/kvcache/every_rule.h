// All cache rules, for tests that hold under each of them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kvcache/rule_traits.h"

namespace winnow::testing {

/// The rules for which `has` is true.
inline std::vector<kvcache::RuleKind> rules_that(bool (*has)(const kvcache::RuleTraits&)) {
  std::vector<kvcache::RuleKind> kinds;
  for (const kvcache::RuleTraits& rule : kvcache::kRules) {
    if (has(rule)) {
      kinds.push_back(rule.kind);
    }
  }
  return kinds;
}

inline std::vector<kvcache::RuleKind> every_rule() {
  return rules_that([](const kvcache::RuleTraits& /*rule*/) { return true; });
}

/// Rules under which any model runs, at any ratio.
inline std::vector<kvcache::RuleKind> every_baseline() {
  return rules_that(
      [](const kvcache::RuleTraits& rule) { return rule.has_budget && !rule.learned(); });
}

/// The same, by name, without those that need statistics of the model.
inline std::vector<std::string> every_baseline_name() {
  std::vector<std::string> names;
  for (const kvcache::RuleKind kind : every_baseline()) {
    const kvcache::RuleTraits& rule = kvcache::traits_of(kind);
    if (!rule.calibrated) {
      names.emplace_back(rule.name);
    }
  }
  return names;
}

/// Rules under which any model runs on a device and queries decide what is dropped or read.
inline std::vector<kvcache::RuleKind> every_device_rule_by_query() {
  return rules_that([](const kvcache::RuleTraits& rule) {
    return rule.has_kernels() && !rule.learned() && !rule.calibrated &&
           (rule.drops() || rule.selects);
  });
}

/// The name of a test whose parameter is a rule.
inline std::string name_of_rule(const ::testing::TestParamInfo<kvcache::RuleKind>& info) {
  return std::string(kvcache::rule_name(info.param));
}

}  // namespace winnow::testing
