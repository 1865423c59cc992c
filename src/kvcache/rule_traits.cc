#include "kvcache/rule_traits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace winnow::kvcache {

std::optional<RuleKind> parse_rule(std::string_view name) {
  const auto* found = std::ranges::find(kRules, name, &RuleTraits::name);
  return found == kRules.end() ? std::nullopt : std::optional(found->kind);
}

std::string list_rules(std::string_view conjunction, bool (*has)(const RuleTraits&)) {
  std::vector<std::string_view> names;
  for (const RuleTraits& rule : kRules) {
    if (has(rule)) {
      names.push_back(rule.name);
    }
  }
  const std::string_view last = names.back();
  names.pop_back();
  return names.empty() ? std::string(last)
                       : fmt::format("{} {} {}", fmt::join(names, ", "), conjunction, last);
}

}  // namespace winnow::kvcache
