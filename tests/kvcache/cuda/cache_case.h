// The parameters of tests of the device's cache.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "kvcache/rule.h"
#include "ops/kv_page.h"

namespace winnow::kvcache::cuda::testing {

struct Case {
  RuleKind rule;
  ops::EntryFormat format;
  int head_dim;
  int group;
  int window = 0;
  int shift = 1;
  double cr = 1.0;
  int reach = 0;  // of the second layer; 0: both are full
  bool chunked = false;
};

inline std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return std::string(rule_name(c.rule)) + "_" + std::string(ops::format_name(c.format)) + "_D" +
         std::to_string(c.head_dim) + "_G" + std::to_string(c.group) + "_w" +
         std::to_string(c.window) + "_shift" + std::to_string(c.shift) + "_cr" +
         std::to_string(static_cast<int>(c.cr)) +
         (c.reach > 0 ? (c.chunked ? "_chunk" : "_reach") + std::to_string(c.reach) : "");
}

}  // namespace winnow::kvcache::cuda::testing
